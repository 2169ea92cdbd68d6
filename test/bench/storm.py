#!/usr/bin/env python3
"""Compares what the Go master and Python's salt-master do in Python at many events at once.

    storm.py --go bin/salt-master --python VENV/bin/salt-master --renderer-python VENV/bin/python --swarm SWARM

1. One runner of Python by 300 minions at once (publish.runner): calls a second.
2. A reaction with a runner of Python: CPU time of the master's process tree for one event.
3. 2,000 events minion_start, each of which has a reaction call state.orchestrate: how many are
   done, how often, in which time, by how many Pythons at once, in how much memory. The Go master
   comes first; Python's gets the same time.

Each orchestration adds a line to a file of its minion: a lost one has no file, a double one two lines.
"""
import argparse, json, os, shutil, statistics, sys, tempfile, threading, time

from master import Master

RUNNER = "def who(name='x'):\n    return {'id': name}\n"
ONE = "one:\n  runner.odd.who:\n    - args:\n      - name: {{ data['id'] }}\n"
START = """new minion:
  runner.state.orchestrate:
    - args:
      - mods: new
      - pillar:
          id: {{ data['id'] }}
"""
NEW = """note:
  file.append:
    - name: DIR/done/{{ pillar['id'] }}
    - text: {{ range(99999) | random }} {{ range(99999) | random }}
"""


def options(minions, threads):
    threads = "reactor_worker_threads: %d\n" % threads if threads else ""
    return threads + """peer_run: {'.*': ['odd.who']}
runner_dirs: [DIR/runners]
reactor:
  - minion_start: [DIR/start.sls]
  - one: [DIR/one.sls]
"""


class Stormed(Master):
    def __init__(self, name, binary, work, port, extra, opts):
        super().__init__(name, binary, work, port, extra.replace("DIR", os.path.join(work, name)), opts)
        for path, text in {"runners/odd.py": RUNNER, "one.sls": ONE, "start.sls": START, "roots/new.sls": NEW, "done/.keep": ""}.items():
            path = os.path.join(self.dir, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text.replace("DIR", self.dir))

    def stop(self):
        super().stop()
        self.proc = None

    def done(self):
        """How many minions have had their orchestration, and how many had it more than once."""
        lines = []
        for name in os.listdir(os.path.join(self.dir, "done")):
            with open(os.path.join(self.dir, "done", name)) as f:
                lines.append(len(f.readlines()))
        return sum(n > 0 for n in lines), sum(n > 1 for n in lines)

    def memory(self):
        """The Pythons of the tree, and its memory in MiB of PSS."""
        pythons, kib = 0, 0
        for pid in self.pids():
            try:
                exe = os.readlink("/proc/%d/exe" % pid)
                with open("/proc/%d/smaps_rollup" % pid) as f:
                    kib += next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
                pythons += "python" in os.path.basename(exe)
            except (OSError, StopIteration):
                pass
        return pythons, kib / 1024


def storm(m, minions, seconds):
    """Fires the events; returns when all are done, or after so many seconds."""
    m.run("signin", "-n", minions)
    most = [0, 0.0]
    before, begun = m.rest(), time.time()
    fired = []
    # The swarm's own report is not needed, and the tree does not come to rest before the end.
    events = threading.Thread(target=lambda: fired.append(fire(m, minions)))
    events.start()
    done = 0
    while time.time() < begun + seconds:
        time.sleep(0.5)
        pythons, mib = m.memory()
        most = [max(most[0], pythons), max(most[1], mib)]
        done, double = m.done()
        if done >= minions and not events.is_alive():
            break
        if m.proc.poll() is not None:
            raise RuntimeError("%s has ended" % m.name)
    took = time.time() - begun
    events.join()
    done, double = m.done()
    return {"done": done, "double": double, "seconds": round(took, 1), "fired_in": fired[0], "pythons": most[0], "pss_mib": round(most[1]),
            "cpu_s": round(m.cpu() - before, 1)}


def fire(m, minions):
    from master import sh
    r = sh([m.swarm, "events", *m.where(), "-json", "-state", m.state, "-n", str(minions), "-c", "32", "-k", "1", "-tag", "minion_start",
            "-timeout", "300s", "-req-timeout", "120s"])
    return {"s": round(r["wall_s"]["median"], 2), "failed": r["failed"]}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--go", required=True)
    ap.add_argument("--python", default="", help="without it the Go master alone")
    ap.add_argument("--renderer-python", required=True)
    ap.add_argument("--swarm", required=True)
    ap.add_argument("--rounds", type=int, default=3, help="of the first two measurements")
    ap.add_argument("--callers", type=int, default=300)
    ap.add_argument("--minions", type=int, default=2000)
    ap.add_argument("--threads", type=int, default=0, help="reactor_worker_threads; 0: each master's default")
    ap.add_argument("--seconds", type=int, default=1200, help="the most that the Go master gets for its orchestrations")
    o = ap.parse_args()
    work = tempfile.mkdtemp(prefix="saltern-storm-")
    extra = options(o.minions, o.threads)
    masters = [Stormed("go", os.path.abspath(o.go), work, 27705, extra + "saltern_renderer_python: %s\n" % o.renderer_python, o)]
    if o.python:
        masters.append(Stormed("python", os.path.abspath(o.python), work, 27805, extra, o))
    print("load", os.getloadavg(), flush=True)
    try:
        for m in masters:
            m.start()
            m.run("signin", "-n", o.callers)
            m.run("runner", "-n", 2, "-fun", "odd.who", "-expect", "id", "-k", 1)  # loads what is loaded once
            m.run("events", "-n", 1, "-k", 2, "-tag", "one")
        for name, measure in (("runner by %d at once" % o.callers, crowd), ("reaction with a runner", reaction)):
            rows = {m.name: [] for m in masters}
            for rnd in range(o.rounds):
                for m in masters if rnd % 2 == 0 else reversed(masters):
                    rows[m.name].append(measure(m, o))
            for key, values in rows.items():
                print(name, key, json.dumps(values), "median", {k: statistics.median(v[k] for v in values) for k in values[0]}, flush=True)
        for m in masters[1:]:
            m.stop()
        limit = o.seconds
        for m in masters:
            if m is not masters[0]:
                m.start()
            print("load", os.getloadavg(), flush=True)
            result = storm(m, o.minions, limit)
            limit = result["seconds"]
            print("orchestrations", m.name, json.dumps(result), flush=True)
            m.stop()
    finally:
        for m in masters:
            m.stop()
        shutil.rmtree(work, ignore_errors=True)


def crowd(m, o):
    r = m.run("runner", "-n", o.callers, "-c", o.callers, "-k", 1, "-fun", "odd.who", "-expect", "id", "-req-timeout", "120s", "-timeout", "300s")
    return {"s": round(r["wall_s"]["median"], 2), "cpu_s": round(r["cpu_s"], 2), "failed": r["failed"]}


def reaction(m, o):
    events = 50
    r = m.run("events", "-n", 1, "-c", 1, "-k", events, "-tag", "one")
    return {"cpu_ms": round(1000 * r["cpu_s"] / events, 1), "failed": r["failed"]}


if __name__ == "__main__":
    sys.exit(main())
