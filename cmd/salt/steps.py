# Runs Salt's own salt-run (salt/scripts.py salt_run), and prints a line on standard error when a
# step of an orchestration ends. In all else it behaves as that program. The first argument is the
# path of the program, further arguments are the command line.
import os
import sys

sys.path = [folder for folder in sys.path if folder]  # nothing from the working directory
sys.argv = sys.argv[1:]

try:
    import salt.scripts
    import salt.state
except ImportError:  # not the Python of that program
    os.execv(sys.argv[0], sys.argv)

LONGEST = 200  # characters of a comment


def beside(step):
    """Whether a step runs in a process of its own, or waits for one (State.call_parallel)."""
    return step.get("result") is None and str(step.get("comment")).endswith(
        ("in a separate process", "in a separate process, max_parallel hit")
    )


class Steps:
    """Counts the steps of each state run. A step that is an orchestration has steps itself."""

    def __init__(self):
        self.me = os.getpid()
        self.depth = 0
        self.ended = {}  # state run: how many of its steps have ended

    def tell(self, state, step, total):
        """Prints a line about a step that has ended, or that runs on beside others."""
        if os.getpid() != self.me:
            return  # in a process of a parallel step
        if beside(step):
            self.print("...", step)
            return
        number = self.ended[id(state)] = self.ended.get(id(state), 0) + 1
        self.print(f"{number}/{total}", step)

    def print(self, count, step):
        result = step.get("result")
        if beside(step):
            outcome = "runs beside the others"
        elif result is False:
            outcome = "failed"
        elif step.get("__state_ran__") is False:
            outcome = "not run"
        else:
            outcome = "would change" if result is None else "done"
        name = step.get("__id__") or step.get("name")
        line = f"{'  ' * (self.depth - 1)}[{count}] {name}: {outcome}"
        if isinstance(step.get("duration"), (int, float)):
            line += f" ({step['duration'] / 1000:.1f} s)"
        if result is False and step.get("comment"):
            line += ": " + str(step["comment"]).strip().split("\n", 1)[0][:LONGEST]
        # A comment may hold what a minion has sent.
        line = "".join(c if c.isprintable() else "?" for c in line)
        try:
            print(line, file=sys.stderr, flush=True)
        except (OSError, ValueError):
            pass


def watch(kind, steps):
    """Has the class of state runs tell what ends."""
    event, call_chunks, reconcile = kind.event, kind.call_chunks, kind.reconcile_procs

    def told_event(self, chunk_ret, length, *args, **kwargs):
        steps.tell(self, chunk_ret, length)
        return event(self, chunk_ret, length, *args, **kwargs)

    def deeper(self, *args, **kwargs):
        steps.depth += 1
        try:
            return call_chunks(self, *args, **kwargs)
        finally:
            steps.depth -= 1
            steps.ended.pop(id(self), None)

    def told_reconcile(self, running):
        parallel = [tag for tag in running if beside(running[tag])]
        over = reconcile(self, running)
        for tag in parallel:
            if not beside(running[tag]):
                steps.tell(self, running[tag], len(running))
        return over

    kind.event, kind.call_chunks, kind.reconcile_procs = told_event, deeper, told_reconcile


watch(salt.state.State, Steps())
sys.exit(salt.scripts.salt_run())
