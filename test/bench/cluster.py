#!/usr/bin/env python3
"""Compares three Go masters behind the Go load balancer with three Python
masters (3008.3) behind HAProxy: the same scripted minions, one side after the
other on loopback addresses, rounds interleaved on request (--rounds).

    cluster.py --bin bin --venv VENV --swarm SWARM [--minions 100] [--pings 9] [--kills 3] [--out FILE]

Measured as an administrator sees it, with each side's own `salt`: time of a
complete test.ping, the first complete one after a master was killed, memory and
idle CPU of each master, and how many events of minions per second reach all
masters.
"""
import argparse, json, os, shutil, signal, socket, statistics, subprocess, sys, tempfile, time

LISTEN = """
import sys, time, salt.utils.event
end, want, mark = time.time() + float(sys.argv[3]), int(sys.argv[4]), sys.argv[2]
ev = salt.utils.event.SaltEvent('master', sys.argv[1], listen=True)
print('ready', flush=True)
n, first, last = 0, 0, 0
while time.time() < end and n < want:
    e = ev.get_event(wait=1, full=True, auto_reconnect=True)
    if e and mark in e['tag']:
        n, last = n + 1, time.time()
        first = first or last
print(n, first, last, flush=True)
"""

LOST = 120  # seconds after which nobody waits for a complete answer any more


def listens(addr, port):
    with socket.socket() as s:
        s.settimeout(2)
        return s.connect_ex((addr, port)) == 0


class Side:
    def __init__(self, name, net, first, o):
        self.name, self.o = name, o
        self.dir = tempfile.mkdtemp(prefix="saltern-bench-")
        self.front = "%s.%d" % (net, first)
        self.addrs = ["%s.%d" % (net, first + 1 + i) for i in range(3)]
        self.masters, self.lb = {}, None
        self.ports = (4505, 4506) if name == "python" else (14505, 14506)
        for d in ("pki", "cache", "roots", "pillar"):
            os.makedirs(os.path.join(self.dir, d), mode=0o700)
        with open(os.path.join(self.dir, "pillar/top.sls"), "w") as f:
            f.write("base: {'*': [p]}\n")
        with open(os.path.join(self.dir, "pillar/p.sls"), "w") as f:  # of 8 KB
            f.writelines("key%d: %s\n" % (i, "x" * 70) for i in range(100))
        for a in self.addrs:
            home = os.path.join(self.dir, a)
            for d in ("etc", "pki", "cache"):
                os.makedirs(os.path.join(home, d), mode=0o700)
            os.makedirs(self.sock(a), mode=0o700)
            with open(os.path.join(home, "etc/master"), "w") as f:
                peers = [p for p in self.addrs if p != a]
                # Salt's masters share their cache, as its documentation has it.
                cache = os.path.join(self.dir if name == "python" else home, "cache")
                f.write("id: %s\ninterface: %s\nuser: root\nroot_dir: /\ncluster_id: bench\ncluster_peers: %s\ncluster_secret: of the bench\n" % (a, a, json.dumps(peers)))
                f.write("cluster_pki_dir: %s/pki\npki_dir: %s/pki\ncachedir: %s\nsock_dir: %s\npidfile: %s/pid\nlog_file: %s/log\n" % (self.dir, home, cache, self.sock(a), home, home))
                f.write("publish_port: %d\nret_port: %d\nauto_accept: True\nlog_level: warning\nlog_level_logfile: quiet\ngather_job_timeout: 5\n" % self.ports)
                f.write("file_roots: {base: [%s/roots]}\npillar_roots: {base: [%s/pillar]}\n" % (self.dir, self.dir))
                if name == "python":  # with its own times a busy machine elects nobody
                    f.write("cluster_election_min: 4000\ncluster_election_max: 8000\n")
                if name == "go":
                    f.write("saltern_front_publish_port: 4505\nsaltern_proxy_from: [127.0.0.0/8]\nsaltern_renderer_python: %s/bin/python3\n" % o.venv)
        path = os.path.join(self.dir, "lb.conf")
        with open(path, "w") as f:
            if name == "go":
                front = [{"name": m, "mode": m, "bind": ["%s:%d" % (self.front, p)]} for m, p in (("publish", 4505), ("request", 4506))]
                back = [{"name": a, "address": a, "publish_port": 14505, "request_port": 14506, "proxy_v2": True} for a in self.addrs]
                json.dump({"frontends": front, "backends": back, "log": {"sessions": "none"}}, f)
            else:
                f.write("defaults\n mode tcp\n balance leastconn\n timeout connect 10s\n timeout client 1m\n timeout server 1m\n")
                for p, t in ((4505, "86400s"), (4506, "1m")):
                    f.write("listen l%d\n bind %s:%d\n timeout client %s\n timeout server %s\n" % (p, self.front, p, t, t))
                    f.writelines(" server %s %s:%d check\n" % (a, a, p) for a in self.addrs)
        self.lb_conf = path

    def sock(self, a):
        # Salt puts a longer path into the cache, which these masters share.
        return os.path.join(self.dir, "s" + a.rsplit(".", 1)[1])

    def spawn(self, args, log):
        return subprocess.Popen(args, stdout=open(os.path.join(self.dir, log), "ab"), stderr=subprocess.STDOUT, start_new_session=True)

    def start_master(self, a):
        binary = os.path.join(self.o.venv, "bin/salt-master") if self.name == "python" else os.path.join(self.o.bin, "salt-master")
        self.masters[a] = self.spawn([binary, "-c", os.path.join(self.dir, a, "etc")], a + ".out")

    def start(self):
        """Starts everything; seconds until a minion can sign in and ask."""
        t = time.time()
        for a in self.addrs:
            self.start_master(a)
            # Salt asks its peers once: who does not listen yet is not joined.
            self.until("port 4520 of " + a, 120, lambda a=a: listens(a, 4520))
        lb = [os.path.join(self.o.bin, "applianced"), "lb", "--config", self.lb_conf] if self.name == "go" else ["haproxy", "-f", self.lb_conf]
        self.lb = self.spawn(lb, "lb.out")
        for a in self.addrs:
            self.serves(a)
        return time.time() - t

    def serves(self, a):
        """Waits until a master serves; one of Salt's that has not joined is started again."""
        for last in (False, False, True):
            try:
                return self.until("master %s serves" % a, 60, lambda: self.swarm("returns", "-n", "1", "-k", "1", "-prefix", "probe-", master=a, ports=self.ports, timeout=20)["failed"] == 0)
            except RuntimeError:
                if last:
                    raise
                print("%s: %s does not serve after a minute, started again" % (self.name, a), flush=True)
                self.kill(a)
                self.start_master(a)

    def until(self, what, limit, f):
        end, last = time.time() + limit, None
        while time.time() < end:
            try:
                if f():
                    return
            except Exception as e:
                last = e
            time.sleep(0.2)
        raise RuntimeError("%s: %s: not within %d s: %s; see %s" % (self.name, what, limit, last, self.dir))

    def swarm(self, mode, *flags, master=None, ports=(4505, 4506), timeout=120):
        args = [self.o.swarm, mode, "-master", master or self.front, "-pub-port", str(ports[0]), "-ret-port", str(ports[1]),
                "-keys", self.o.keys, "-timeout", "%ds" % timeout, "-json", *flags]
        p = subprocess.run(args, capture_output=True, text=True, timeout=timeout + 30)
        return json.loads(next(l for l in reversed(p.stdout.splitlines()) if l.startswith("{")))

    def hold(self, n):
        """n minions that stay and answer."""
        ready = os.path.join(self.dir, "ready")
        self.minions = self.spawn([self.o.swarm, "hold", "-master", self.front, "-pub-port", "4505", "-ret-port", "4506", "-keys", self.o.keys, "-n", str(n),
                                   "-jobs", "100000", "-timeout", "3000s", "-ready-file", ready], "swarm.out")
        self.until("minions listen", 120, lambda: os.path.exists(ready))

    def ping(self, a, n, t=15):
        """Seconds of one test.ping and how many answered."""
        began = time.time()
        p = subprocess.run([self.salt(), "-c", os.path.join(self.dir, a, "etc"), "-t", str(t), "--out", "txt", "sw-*", "test.ping"], capture_output=True, text=True, timeout=300)
        return time.time() - began, sum(l.rstrip().endswith(": True") for l in p.stdout.splitlines())

    def first_complete(self, a, n, limit=LOST):
        """Seconds until a test.ping is complete; one is begun every 2 s. limit: none was."""
        began, open_, begun = time.time(), [], 0.0
        salt = self.salt()
        while time.time() - began < limit:
            if time.time() - begun >= 2 and len(open_) < 10:
                begun = time.time()
                out = tempfile.TemporaryFile("w+")
                open_.append((subprocess.Popen([salt, "-c", os.path.join(self.dir, a, "etc"), "-t", "5", "--out", "txt", "sw-*", "test.ping"], stdout=out, stderr=subprocess.DEVNULL), out))
            for p, out in list(open_):
                if p.poll() is None:
                    continue
                open_.remove((p, out))
                out.seek(0)
                if sum(l.rstrip().endswith(": True") for l in out) == n:
                    took = time.time() - began
                    for p, _ in open_:
                        p.kill()
                        p.wait()
                    return took
            time.sleep(0.05)
        return float(limit)

    def salt(self):
        return os.path.join(self.o.venv, "bin/salt") if self.name == "python" else os.path.join(self.o.bin, "salt")

    def tree(self, root):
        """Processes of a tree."""
        todo, found = [root], []
        while todo:
            pid = todo.pop()
            found.append(pid)
            try:
                for tid in os.listdir("/proc/%d/task" % pid):
                    with open("/proc/%d/task/%s/children" % (pid, tid)) as f:
                        todo += map(int, f.read().split())
            except OSError:
                pass
        return found

    def pss(self, root):
        """MiB and processes of a tree."""
        total, procs = 0, 0
        for pid in self.tree(root):
            try:
                with open("/proc/%d/smaps_rollup" % pid) as f:
                    total += next(int(l.split()[1]) for l in f if l.startswith("Pss:"))
                procs += 1
            except (OSError, StopIteration):
                pass
        return total / 1024, procs

    def idle(self, seconds=10):
        """Milliseconds of CPU a second of each master and of the load balancer, while nobody asks for anything."""
        roots = [self.masters[a].pid for a in self.addrs] + [self.lb.pid]
        before = [self.used(r) for r in roots]
        time.sleep(seconds)
        return [(self.used(r) - b) / seconds for r, b in zip(roots, before)]

    def used(self, root):
        """Milliseconds of CPU that a tree of processes has used."""
        ticks = 0
        for pid in self.tree(root):
            try:
                with open("/proc/%d/stat" % pid) as f:
                    ticks += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
            except OSError:
                pass
        return ticks * 1000 / os.sysconf("SC_CLK_TCK")

    def pillars(self, n, k, idle):
        """Milliseconds of CPU for a pillar that the first master compiles: its own, and of each of the others, which get it as well; idle ms/s of each are taken off."""
        roots = [self.masters[a].pid for a in self.addrs]
        before, began = [self.used(r) for r in roots], time.time()
        failed = self.swarm("pillar", "-n", str(n), "-k", str(k), "-c", "8", master=self.addrs[0], ports=self.ports)["failed"]
        time.sleep(2)  # what is on its way
        seconds = time.time() - began
        own, *others = [max(0.0, self.used(r) - b - i * seconds) / (n * k) for r, b, i in zip(roots, before, idle)]
        return own, others, failed

    def events(self, n, k):
        """Events per second that reach all three masters, and how many did."""
        ls = [subprocess.Popen([os.path.join(self.o.venv, "bin/python3"), "-c", LISTEN, self.sock(a), self.o.mark, "120", str(n * k)],
                               stdout=subprocess.PIPE, text=True) for a in self.addrs]
        for l in ls:
            l.stdout.readline()
        began = time.time()
        r = self.swarm("events", "-n", str(n), "-k", str(k), "-c", "16")
        got = [l.communicate()[0].split() for l in ls]
        last = max(float(g[2]) for g in got)
        return sum(int(g[0]) for g in got) / 3 / max(last - began, 0.01), min(int(g[0]) for g in got), r["failed"]

    def kill(self, a):
        os.killpg(self.masters[a].pid, signal.SIGKILL)
        self.masters[a].wait()

    def stop(self):
        for p in [getattr(self, "minions", None), self.lb, *self.masters.values()]:
            if p:
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                    p.wait()
                except ProcessLookupError:
                    pass
        if not self.o.keep:
            shutil.rmtree(self.dir, ignore_errors=True)


def measure(side, o, out):
    n = o.minions

    def note(what, *values):
        out.setdefault(what, []).extend(values)
        print("%s: %s: %s" % (side.name, what, " ".join("%.4g" % v for v in values)), flush=True)

    note("start of three masters one by one, s", side.start())
    side.hold(n)
    for i in range(o.pings):
        s, got = side.ping(side.addrs[i % 3], n)
        if got == n:
            note("complete test.ping, s", s)
        else:
            note("missing in a test.ping that was not complete", n - got)
    *masters, lb = side.idle()
    note("idle CPU of a master, ms/s", *masters)
    own, others, failed = side.pillars(50, o.pillars, masters)
    note("CPU of a pillar of 8 KB, with sign-ins, at the master that compiles it, ms", own)
    note("CPU of it at each of the others, ms", *others)
    if failed:
        note("pillars without a right answer", failed)
    note("idle CPU of the load balancer, ms/s", lb)
    sizes = [side.pss(side.masters[a].pid) for a in side.addrs]
    note("memory of a master, MiB PSS", *(mib for mib, _ in sizes))
    note("processes of a master", *(procs for _, procs in sizes))
    note("memory of the load balancer, MiB PSS", side.pss(side.lb.pid)[0])
    rate, all3, failed = side.events(50, o.events)
    note("events of minions a second at all masters", rate)
    note("events missing at a master, of %d" % (50 * o.events), 50 * o.events - all3)
    for i in range(o.kills):
        victim, other = side.addrs[i % 3], side.addrs[(i + 1) % 3]
        side.kill(victim)
        took = side.first_complete(other, n)
        note("first complete test.ping after SIGKILL of a master, s" if took < LOST else "no complete test.ping within %d s after SIGKILL of a master" % LOST, took)
        side.start_master(victim)
        side.serves(victim)


def main():
    ap = argparse.ArgumentParser()
    for f in ("--bin", "--venv", "--swarm"):
        ap.add_argument(f, required=True)
    for f, d in (("--minions", 100), ("--pings", 9), ("--kills", 3), ("--events", 20), ("--pillars", 40), ("--rounds", 1)):
        ap.add_argument(f, type=int, default=d)
    ap.add_argument("--net", default="127.0.50")
    ap.add_argument("--only", choices=("go", "python"))
    ap.add_argument("--keep", action="store_true", help="keep the folders")
    ap.add_argument("--out")
    o = ap.parse_args()
    o.bin, o.venv, o.swarm, o.mark = os.path.abspath(o.bin), os.path.abspath(o.venv), os.path.abspath(o.swarm), "swarm"
    o.keys = os.path.join(tempfile.gettempdir(), "saltern-bench-keys")
    got, failed = {"go": {}, "python": {}}, False
    for _ in range(o.rounds):
        for name, first in (("go", 10), ("python", 20)):
            if o.only and o.only != name:
                continue
            side = Side(name, o.net, first, o)
            try:
                measure(side, o, got[name])
            except RuntimeError as e:  # the figures so far count
                print("%s: ended: %s" % (name, e), flush=True)
                failed = True
            finally:
                side.stop()
    lines = ["| measure | three Go masters, lb: min / median / max | three Python masters, HAProxy |", "| --- | --- | --- |"]
    show = lambda v: "%.3g / %.3g / %.3g" % (min(v), statistics.median(v), max(v)) if v else "–"
    for k in dict.fromkeys([*got["go"], *got["python"]]):
        lines.append("| %s | %s | %s |" % (k, show(got["go"].get(k)), show(got["python"].get(k))))
    text = "\n".join([*lines, "", "Load average at the end: %s." % os.getloadavg()[0]])
    print(text)
    if o.out:
        with open(o.out, "w") as f:
            f.write(text + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
