#!/usr/bin/env python3
"""Compares the Go master with Python's salt-master on one machine.

Both masters run at the same time, each in a folder of its own on loopback;
every measurement is made for the one and then at once for the other, so that
noise of the machine meets both. The figure to compare is the CPU time of the
master's process tree per operation; wall times are shown for what they are
worth. The load generator plays real minions and checks every reply.

    master.py --go bin/salt-master --python VENV/bin/salt-master --swarm SWARM [--rounds 3] [--quick] [--out FILE]

--python may be a salt-master of ours as well, built before a change: then the columns
called Python are that one's.
"""
import argparse, json, os, shutil, signal, statistics, subprocess, sys, tempfile, time

PILLAR_SLS = """{% set base = grains['id'] %}
app:
{% for i in range(20) %}
  item{{ i }}:
    name: {{ base }}-{{ i }}
    path: /srv/{{ grains['id'] }}/{{ i }}
    weight: {{ i * 3 }}
{% endfor %}
"""


def sh(args, timeout=900):
    p = subprocess.run(args, capture_output=True, text=True, timeout=timeout)
    line = next((l for l in reversed(p.stdout.splitlines()) if l.startswith("{")), None)
    if line is None:
        raise RuntimeError("%s\n%s\n%s" % (" ".join(args), p.stdout[-2000:], p.stderr[-2000:]))
    return json.loads(line)


class Master:
    def __init__(self, name, binary, work, port, extra, opts):
        self.name, self.binary, self.dir, self.port, self.swarm = name, binary, os.path.join(work, name), port, opts.swarm
        self.keys, self.state = os.path.join(work, "keys"), os.path.join(self.dir, "state.json")
        self.proc = None
        for d in ("etc", "roots/small", "pillar"):
            os.makedirs(os.path.join(self.dir, d))
        with open(os.path.join(self.dir, "etc/master"), "w") as f:
            f.write("root_dir: %s\nuser: root\ninterface: 127.0.0.1\npublish_port: %d\nret_port: %d\nauto_accept: True\n" % (self.dir, port, port + 1))
            f.write("pki_dir: pki\ncachedir: cache\nsock_dir: sock\nlog_file: log\npidfile: pid\n")
            f.write("file_roots: {base: [%s/roots]}\npillar_roots: {base: [%s/pillar]}\n%s" % (self.dir, self.dir, extra))
        with open(os.path.join(self.dir, "roots/big.bin"), "wb") as f:
            f.write(os.urandom(50 << 20))
        for i in range(25):
            with open(os.path.join(self.dir, "roots/small/f%d.txt" % i), "wb") as f:
                f.write(os.urandom(4096))
        with open(os.path.join(self.dir, "pillar/top.sls"), "w") as f:
            f.write("base:\n  '*':\n    - app\n")
        with open(os.path.join(self.dir, "pillar/app.sls"), "w") as f:
            f.write(PILLAR_SLS)

    def start(self):
        """Starts the master; returns seconds until a first sign-in is answered."""
        t = time.time()
        self.proc = subprocess.Popen([self.binary, "-c", os.path.join(self.dir, "etc"), "-l", "warning"],
                                     stdout=open(os.path.join(self.dir, "out"), "ab"), stderr=subprocess.STDOUT, start_new_session=True)
        end = t + 60
        while time.time() < end:
            p = subprocess.run([self.swarm, "auth", *self.where(), "-prefix", "probe-", "-n", "1", "-timeout", "5s", "-json"], capture_output=True, text=True)
            if p.returncode == 0:
                return time.time() - t
            time.sleep(0.02)
        raise RuntimeError("%s does not answer, see %s/out" % (self.name, self.dir))

    def stop(self):
        if self.proc:
            os.killpg(self.proc.pid, signal.SIGTERM)
            try:
                self.proc.wait(20)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(self.proc.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def where(self):
        return ["-master", "127.0.0.1", "-pub-port", str(self.port), "-ret-port", str(self.port + 1), "-keys", self.keys]

    def cpu(self):
        """CPU seconds of the tree so far, with those of children that have ended."""
        ticks = 0
        for pid in self.pids():
            try:
                with open("/proc/%d/stat" % pid) as f:
                    ticks += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:15]))
            except (FileNotFoundError, ProcessLookupError):
                pass
        return ticks / os.sysconf("SC_CLK_TCK")

    def rest(self):
        """Waits until the tree is quiet and returns its CPU seconds."""
        before, end = self.cpu(), time.time() + 30
        while time.time() < end:
            time.sleep(0.3)
            now = self.cpu()
            if now - before <= 0.011:
                return now
            before = now
        raise RuntimeError("%s does not come to rest" % self.name)

    def run(self, mode, *flags, state=True, root=False):
        """One run of swarm. cpu_s is what the master used until it was quiet
        again: what it puts off until after its answer counts as well."""
        args = [self.swarm, mode, *self.where(), "-json", "-pid", str(self.proc.pid), *map(str, flags)]
        if state:
            args += ["-state", self.state]
        if root:
            args += ["-root-key", os.path.join(self.dir, "cache/.root_key")]
        before = self.rest()
        r = sh(args)
        r["cpu_s"] = self.rest() - before
        return r

    def hold_still(self, n, seconds):
        """PSS in KiB per minion: n minions subscribe, answer two jobs, stay; taken when all has settled."""
        before = self.tree(1)["master_tree"]["after"]["pss_mib"]
        args = [self.swarm, "hold", *self.where(), "-json", "-n", str(n), "-jobs", "99", "-timeout", "%ds" % (seconds + 90), "-state", self.state,
                "-ready-file", os.path.join(self.dir, "ready")]
        p = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            end = time.time() + 60
            while not os.path.exists(os.path.join(self.dir, "ready")):
                if p.poll() is not None or time.time() > end:
                    raise RuntimeError("%s: minions do not connect" % self.name)
                time.sleep(0.1)
            for _ in range(2):
                self.run("publish", "-k", 1, "-c", 1, "-tgt", "sw-*", state=False, root=True)
                time.sleep(5)
            # The descriptors show whether all connections are there still.
            time.sleep(seconds)
            fds = sum(len(os.listdir("/proc/%d/fd" % pid)) for pid in self.pids())
            after = self.tree(1)["master_tree"]["after"]["pss_mib"]
        finally:
            p.terminate()
            p.wait()
            os.unlink(os.path.join(self.dir, "ready"))
        return max(0.01, 1024 * (after - before) / n), before, after, fds

    def pids(self):
        """The process tree of the master."""
        out, todo = [], [self.proc.pid]
        while todo:
            pid = todo.pop()
            out.append(pid)
            try:
                for tid in os.listdir("/proc/%d/task" % pid):
                    with open("/proc/%d/task/%s/children" % (pid, tid)) as f:
                        todo += map(int, f.read().split())
            except FileNotFoundError:
                pass
        return out

    def tree(self, seconds):
        return sh([self.swarm, "tree", "-pid", str(self.proc.pid), "-for", "%ds" % seconds, "-json"])


def ms_per_op(r, ops=None):
    return 1000 * r["cpu_s"] / (ops or r["requests"])


def rows(quick, rnd):
    """(name, unit, function of a master → (CPU ms per operation, note))."""
    big = 1 if quick else 2

    def auth(*flags):
        return lambda m: (lambda r: (ms_per_op(r), r["failed"]))(m.run("auth", "-n", 60 * big, "-c", 8, *flags, state=False))

    def job(n):
        def f(m):
            r = m.run("hold", "-n", n, "-drive", 2, root=True)
            done = sum(j["returned"] for j in r["jobs"])
            wall = min(j["total_ms"] for j in r["jobs"])
            return ms_per_op(r, max(done, 1)), sum(j["matched"] - j["returned"] for j in r["jobs"]), wall
        return f

    out = [
        ("sign-in, new id, no token", auth("-prefix", "n%s-" % rnd, "-token=false")),
        ("sign-in, new id, with token", auth("-prefix", "t%s-" % rnd)),
        ("sign-in again, known id, with token", auth("-prefix", "t%s-" % rnd)),
        ("_return to a job, 16 at once", lambda m: (lambda r: (ms_per_op(r), r["failed"]))(m.run("returns", "-n", 100, "-k", 5 * big, "-c", 16, root=True))),
        ("_return, one at a time", lambda m: (lambda r: (ms_per_op(r), r["failed"]))(m.run("returns", "-n", 20, "-k", 15, "-c", 1, root=True))),
        ("_return, new connection each", lambda m: (lambda r: (ms_per_op(r), r["failed"]))(m.run("returns", "-n", 50, "-k", 6, "-c", 8, "-req", "fresh", root=True))),
        ("_return with jid req", lambda m: (lambda r: (ms_per_op(r), r["failed"]))(m.run("returns", "-n", 30, "-k", 2, "-c", 8))),
        ("_minion_event", lambda m: (lambda r: (ms_per_op(r), r["failed"]))(m.run("events", "-n", 100, "-k", 10 * big, "-c", 16))),
        ("_pillar (top + one sls, Jinja loop of 20)", lambda m: (lambda r: (ms_per_op(r), r["failed"]))(m.run("pillar", "-n", 6 * big, "-k", 2, "-c", 4, "-expect", "app"))),
        ("50 MB file, per MB", lambda m: (lambda r: (ms_per_op(r, 50), r["failed"]))(m.run("file", "-n", 1, "-k", 1, "-c", 1, "-path", "big.bin"))),
        ("4 KiB file", lambda m: (lambda r: (ms_per_op(r, 32 * 25), r["failed"]))(m.run("file", "-n", 32, "-k", 25, "-c", 8, "-path", "small/f%d.txt"))),
        ("publish, %d keys and those that signed in since" % (100 if quick else 1000), lambda m: (lambda r: (ms_per_op(r), r["failed"]))(m.run("publish", "-k", 10 * big, "-c", 1, root=True))),
        ("whole job, 100 minions, per return", job(100)),
    ]
    if not quick:
        out.append(("whole job, 1,000 minions, per return", job(1000)))
    return out


def med(v):
    return "%.3g / %.3g / %.3g" % (min(v), statistics.median(v), max(v))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--go", required=True)
    ap.add_argument("--python", required=True)
    ap.add_argument("--swarm", required=True)
    ap.add_argument("--renderer-python", default="")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--large", action="store_true", help="also 3,000 minions and many keys")
    ap.add_argument("--out")
    o = ap.parse_args()
    work = tempfile.mkdtemp(prefix="saltern-bench-")
    extra = "saltern_renderer_python: %s\n" % o.renderer_python if o.renderer_python else ""
    masters = [Master("go", os.path.abspath(o.go), work, 27505, extra, o), Master("python", os.path.abspath(o.python), work, 27605, extra, o)]
    lines, times = [], {}

    def row(name, unit, values, notes):
        g, p = statistics.median(values["go"]), statistics.median(values["python"])
        ratio = p / g if g > 0 else float("inf")
        line = "| %s | %s | %s | %s | %.1f | %s |" % (name, unit, med(values["go"]), med(values["python"]), ratio, notes)
        lines.append(line)
        print(line, flush=True)

    try:
        print("| measure | unit | Go min/median/max | Python min/median/max | Python ÷ Go (medians) | failed Go, Python; wall |\n| --- | --- | --- | --- | --- | --- |", flush=True)
        first = {m.name: [m.start()] for m in masters}
        for _ in range(2):
            for m in masters:
                m.stop()
                first[m.name].append(m.start())
        row("start to first answered sign-in", "s", first, "keys are made in the first of three")
        time.sleep(25) # what the start left is given back by then
        trees = {m.name: [m.tree(4 if o.quick else 8)] for m in masters}
        row("idle memory", "MiB PSS", {n: [t[0]["master_tree"]["after"]["pss_mib"]] for n, t in trees.items()},
            ", ".join("%s: %d processes" % (n, t[0]["master_tree"]["after"]["procs"]) for n, t in trees.items()))
        row("idle CPU", "ms/s", {n: [max(1000 * t[0]["master_tree"]["cpu_s"] / (4 if o.quick else 8), 0.01)] for n, t in trees.items()}, "")
        n_state = 1000 if not o.quick else 100
        for m in masters:
            m.run("signin", "-n", n_state)
        # Memory first: afterwards every master keeps what its bursts took.
        time.sleep(5 if o.quick else 30)
        mem = {m.name: m.hold_still(n_state, 5 if o.quick else 18) for m in masters}
        row("memory per connected minion, settled after two jobs", "KiB PSS", {n: [v[0]] for n, v in mem.items()},
            "; ".join("%s: %.0f to %.0f MiB, %d descriptors" % (n, *v[1:]) for n, v in mem.items()))
        # Warm-up: renderers, caches and lazily loaded modules of both. Not measured.
        for _, f in rows(True, "w"):
            for m in masters:
                f(m)
        for rnd in range(o.rounds):
            for name, f in rows(o.quick, rnd):
                for m in masters if rnd % 2 == 0 else reversed(masters):
                    times.setdefault(name, {"go": [], "python": []})[m.name].append(f(m))
        for name, v in times.items():
            cpu = {k: [x[0] for x in xs] for k, xs in v.items()}
            notes = "%d, %d" % (sum(x[1] for x in v["go"]), sum(x[1] for x in v["python"]))
            if len(v["go"][0]) > 2:
                notes += "; publish to last return best %.0f ms, %.0f ms" % (min(x[2] for x in v["go"]), min(x[2] for x in v["python"]))
            row(name, "CPU ms", cpu, notes)
        if o.large:
            for m in masters:
                m.run("signin", "-n", 3000)
            big = {m.name: m.run("hold", "-n", 3000, "-drive", 2, "-req", "pool=300", "-req-timeout", "60s", root=True) for m in masters}
            row("whole job, 3,000 minions, per return", "CPU ms", {n: [ms_per_op(r, max(1, sum(j["returned"] for j in r["jobs"])))] for n, r in big.items()},
                "; ".join("%s: %s" % (n, ["%d of %d in %.0f ms" % (j["returned"], j["matched"], j["total_ms"]) for j in r["jobs"]]) for n, r in big.items()))
            pub = {m.name: [ms_per_op(m.run("publish", "-k", 20, "-c", 1, root=True))] for m in masters}
            row("publish with over 3,000 accepted keys", "CPU ms", pub, "")
    finally:
        for m in masters:
            m.stop()
        shutil.rmtree(work, ignore_errors=True)
    if o.out:
        with open(o.out, "w") as f:
            f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
