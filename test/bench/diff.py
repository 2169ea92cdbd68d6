#!/usr/bin/env python3
"""Times pillar.diff and pillar.readers on a master whose minions run jobs meanwhile.

    diff.py --go bin/salt-master --salt-run bin/salt-run --renderer-python VENV/bin/python --swarm SWARM

The minions have ten roles and twenty SLS with templates; the change touches two SLS and the top file. Three
times: while nothing else runs, while test.ping goes to all minions about each second (--gap after the last return of
the job before), and while all minions do state.apply, for which each asks for its pillar. The jobs run
without a comparison as well. Times of jobs are from their publish to their last return.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, threading, time

from highstate import Applied, SLS

TOP = "base:\n  '*': [s0, s1, s2, s3, s4, s5, s6, s7, s8, s9]\n" + "".join(
    "  'role:role%d':\n    - match: grain\n    - s%d\n" % (i, 10 + i) for i in range(10))


class Compared(Applied):
    """A master with a pillar, and a folder beside it with the pillar after a change."""

    def __init__(self, name, binary, work, port, extra, opts):
        super().__init__(name, binary, work, port, extra, opts)
        self.salt_run = os.path.abspath(opts.salt_run)
        self.changed = os.path.join(self.dir, "changed")
        with open(os.path.join(self.dir, "pillar/top.sls"), "w") as f:
            f.write(TOP)
        shutil.copytree(os.path.join(self.dir, "pillar"), self.changed)
        for path, text in {"s3.sls": SLS.replace("@", "3") + "  added: {{ grains.os }}\n", "s12.sls": SLS.replace("@", "77"),
                           "top.sls": TOP + "  'role:role5 and sw-000*':\n    - s19\n"}.items():
            with open(os.path.join(self.changed, path), "w") as f:
                f.write(text)

    def call(self, runner, *args):
        """Seconds of one call of a runner, and its answer."""
        began = time.time()
        p = subprocess.run([self.salt_run, "-c", os.path.join(self.dir, "etc"), "--out=json", runner, *args], capture_output=True, text=True, timeout=600)
        try:
            return time.time() - began, json.loads(p.stdout)
        except ValueError:
            raise RuntimeError("%s: %s%s" % (runner, p.stdout[-2000:], p.stderr[-2000:]))

    def compare(self, minions):
        seconds, answer = self.call("pillar.diff", "folder=" + self.changed)
        if answer["compared"] != minions or answer["differ"] != minions:
            raise RuntimeError("%d of %d minions were compared, %d differ" % (answer["compared"], minions, answer["differ"]))
        return seconds

    def search(self, minions):
        seconds, answer = self.call("pillar.readers", "service3:port")
        if answer["readers"] != minions:
            raise RuntimeError("%d of %d minions get the key" % (answer["readers"], minions))
        return seconds


def beside(m, o, work, *flags):
    """Runs jobs, and calls work again and again meanwhile. Returns the times of the jobs, how many returned, and what work took."""
    took, over, faults = [], threading.Event(), []

    def repeat():
        time.sleep(o.settle)
        while not over.is_set():
            try:
                began = time.time()
                seconds = work()
                took.append((began, seconds))
            except Exception as exc:
                faults.append(exc)
                return

    thread = threading.Thread(target=repeat)
    if work:
        thread.start()
    try:
        r = m.run("hold", "-n", o.minions, *flags, "-tries", 3, "-req-timeout", "60s", "-timeout", "%ds" % o.seconds, root=True)
    finally:
        ended = time.time()
        over.set()
        if work:
            thread.join()
    if faults:
        raise faults[0]
    jobs = r.get("jobs", [])
    return {"jobs": len(jobs), "returned": sum(j["returned"] for j in jobs), "failed": r["failed"], "errors": r.get("errors"),
            "seconds": shown([j.get("pub_to_last_ret_ms", 0) / 1000 for j in jobs]), "calls": shown([s for began, s in took if began + s <= ended + 1])}


def shown(values):
    if not values:
        return None
    return {"n": len(values), "median": round(statistics.median(values), 2), "max": round(max(values), 2)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--go", required=True)
    ap.add_argument("--salt-run", required=True)
    ap.add_argument("--renderer-python", required=True)
    ap.add_argument("--swarm", required=True)
    ap.add_argument("--minions", type=int, default=2000)
    ap.add_argument("--pings", type=int, default=40, help="jobs of test.ping")
    ap.add_argument("--gap", default="700ms", help="from the last return of a job to the next one")
    ap.add_argument("--port", type=int, default=27945)
    ap.add_argument("--settle", type=float, default=1.5, help="seconds from the start of the minions to the first call")
    ap.add_argument("--seconds", type=int, default=550, help="the most that one run of jobs gets")
    o = ap.parse_args()
    work = tempfile.mkdtemp(prefix="saltern-diff-")
    extra = "saltern_renderer_python: %s\nsaltern_diff_folders: [%s]\n" % (o.renderer_python, work)
    m = Compared("go", os.path.abspath(o.go), work, o.port, extra, o)

    def say(what, result):
        print(what, "load", round(os.getloadavg()[0], 1), json.dumps(result), flush=True)

    ping = ("-drive", o.pings, "-gap", o.gap, "-fun", "test.ping")
    apply = ("-drive", 1, "-fun", "state.apply", "-highstate", "-expect", "service3", "-path", "states/f%d.sls", "-k", 2)
    works = {"pillar.diff": lambda: m.compare(o.minions), "pillar.readers": lambda: m.search(o.minions)}
    try:
        m.start()
        m.run("signin", "-n", o.minions, "-timeout", "300s")
        r = m.run("pillar", "-n", o.minions, "-k", 1, "-expect", "service3", "-tries", 3, "-req-timeout", "60s", "-timeout", "500s")
        if r["failed"]:  # the master has no grains of these
            raise RuntimeError("%d minions have no pillar: %s" % (r["failed"], r.get("errors")))
        for name, call in works.items():
            say(name + " alone", shown([call() for _ in range(3)]))
        for kind, flags in (("test.ping", ping), ("state.apply", apply)):
            say(kind + " alone", beside(m, o, None, *flags))
            for name, call in works.items():
                say("%s with %s" % (kind, name), beside(m, o, call, *flags))
    finally:
        m.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
