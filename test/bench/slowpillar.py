#!/usr/bin/env python3
"""Times pillars of thousands of scripted minions whose cmd_yaml takes seconds, or hangs for some of them.

    slowpillar.py --go bin/salt-master --swarm SWARM [--python VENV/bin/salt-master]

All minions ask at once and wait a minute for an answer: three times, as real ones do, and then until they have it
(--patient times). Then the command hangs for each tenth minion, and all ask three times, twice. A pillar without what
comes after the command counts as failed. Python's master gets fewer minions (--few).
"""
import argparse, json, os, shutil, subprocess, sys, tempfile

from master import Master

SLOW = "sleep 2; echo \"slow: {id: %s}\""
HANG = "case %s in *7) sleep 100000;; esac; " + SLOW


class Slow(Master):
    """A master whose pillars have three commands, of which the second one is slow."""

    def __init__(self, name, binary, work, port, command, extra, opts):
        chain = "ext_pillar:\n  - cmd_yaml: 'echo before: 1'\n  - cmd_yaml: '%s'\n  - cmd_yaml: 'echo after: 1'\n" % command
        super().__init__(name, binary, work, port, chain + extra, opts)
        with open(os.path.join(self.dir, "pillar/app.sls"), "w") as f:
            f.write("app: 1\n")

    def ask(self, minions, tries):
        """All minions ask for their pillars; a failure of some is no failure of the run."""
        args = [self.swarm, "pillar", *self.where(), "-json", "-state", self.state, "-n", str(minions), "-c", str(minions), "-k", "1",
                "-expect", "after", "-tries", str(tries), "-req-timeout", "60s", "-timeout", "%ds" % (tries * 60 + 60)]
        r = json.loads(subprocess.run(args, capture_output=True, text=True).stdout)
        took = r.get("latency_ms", {})
        print(self.name, "minions", minions, "tries", tries, "answered", r["requests"], "failed", r["failed"],
              "median_s", round(took.get("median", 0) / 1000, 1), "last_s", round(took.get("max", 0) / 1000, 1),
              "load", round(os.getloadavg()[0], 1), r.get("errors", ""), flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--go", required=True)
    ap.add_argument("--python", default="", help="Salt's salt-master")
    ap.add_argument("--swarm", required=True)
    ap.add_argument("--minions", type=int, default=3000)
    ap.add_argument("--few", type=int, default=300)
    ap.add_argument("--patient", type=int, default=30)
    o = ap.parse_args()
    work = tempfile.mkdtemp(prefix="saltern-slowpillar-")
    kinds = [("go", o.go, "", o.minions)] + ([("python", o.python, "worker_threads: 5\n", o.few)] if o.python else [])
    masters = []
    try:
        for i, (name, binary, extra, minions) in enumerate(kinds):
            for j, (command, number, tries) in enumerate([(SLOW, minions, [3, o.patient]), (HANG, o.few, [3, 3])]):
                m = Slow("%s-%s" % (name, ["slow", "hang"][j]), os.path.abspath(binary), work, 27905 + 20 * i + 10 * j, command, extra, o)
                masters.append(m)
                m.start()
                m.run("signin", "-n", number, "-timeout", "300s")
                for n in tries:
                    m.ask(number, n)
                m.stop()
    finally:
        for m in masters:
            m.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
