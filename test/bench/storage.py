#!/usr/bin/env python3
"""Compares three masters that share a folder on GlusterFS with the same three
on a local directory, on three pretend machines (test/gluster/lab), as root.

The masters take the new keys of one moment together and make files of them
later; what that costs GlusterFS is counted until all are there.

Both clusters run at the same time on the same machines, on ports of their own,
and every measurement is made on the one and then at once on the other. CPU is
that of the masters; what GlusterFS itself used is shown beside it. The load
generator plays real minions and checks every reply.

    storage.py --bin bin --swarm SWARM [--rounds 5] [--minions 300] [--out FILE]
"""
import argparse, json, os, signal, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
LAB = os.path.join(HERE, "../gluster/lab")
NET = "10.72.2"
ENV = dict(os.environ, LAB_NAME="sbn", LAB_NET=NET)


def lab(*args, timeout=300, check=True):
    p = subprocess.run([LAB] + [str(a) for a in args], env=ENV, capture_output=True, text=True, timeout=timeout)
    if check and p.returncode:
        raise RuntimeError("%s: %s%s" % (" ".join(map(str, args)), p.stdout[-3000:], p.stderr[-3000:]))
    return p.stdout


def wait(what, limit, check):
    end = time.time() + limit
    while time.time() < end:
        if check():
            return
        time.sleep(0.5)
    raise RuntimeError("not within %d s: %s" % (limit, what))


def volume(opts, work):
    """Forms a volume of three copies; returns the processes that keep it."""
    nodes = [{"name": "node%d" % i, "address": "%s.1%d" % (NET, i), "state": "member", "certificate": "0" * 64,
              "storage": "data", "brick": "/data/brick/cluster-1"} for i in (1, 2, 3)]
    table = os.path.join(work, "table")
    keepers = []

    def write(n, version):
        with open(table + ".new", "w") as f:
            json.dump({"version": version, "cluster": "bench", "keyHash": "0" * 64, "nodes": nodes[:n]}, f)
        os.rename(table + ".new", table)

    write(1, 1)
    for i in (1, 2, 3):
        conf = os.path.join(work, "node%d.yaml" % i)
        with open(conf, "w") as f:
            f.write("node: node%d\ndata_dir: /data/saltern\nruntime_dir: /run/saltern\nstorage: {kind: volume, bricks: /data/brick}\n" % i)
        out = os.path.join(work, "keep%d" % i)
        args = [LAB, "exec", str(i), os.path.join(opts.bin, "applianced"), "--config", conf, "storage", "apply", "--stay", "--table", table]
        keepers.append(subprocess.Popen(args + (["--form"] if i == 1 else []), env=ENV, stdout=open(out, "w"), stderr=subprocess.STDOUT, start_new_session=True))
        if i == 1:
            wait("the volume", 120, lambda: " ready" in open(out).read())
    write(3, 2)

    def grown():
        out = lab("exec", 1, "gluster", "--mode=script", "volume", "info", "cluster", check=False)
        return out.count("/data/brick/cluster-1") >= 3 and all(open(os.path.join(work, "keep%d" % i)).read().rstrip().endswith("ready") for i in (1, 2, 3))
    wait("three copies", 300, grown)
    return keepers


class Cluster:
    """Three masters that share the folder `shared`."""

    def __init__(self, name, shared, port, work, opts):
        self.name, self.port, self.work, self.opts, self.procs = name, port, work, opts, []
        self.pki = shared + "/pki"
        lab("exec", 1, "mkdir", "-p", self.pki)
        for i in (1, 2, 3):
            d = os.path.join(work, name, str(i))
            for sub in ("etc", "pki", "cache", "sock", "roots"):
                os.makedirs(os.path.join(d, sub))
            peers = ["%s.1%d" % (NET, j) for j in (1, 2, 3) if j != i]
            conf = {"id": "%s.1%d" % (NET, i), "interface": "%s.1%d" % (NET, i), "publish_port": port, "ret_port": port + 1, "root_dir": "/", "user": "root",
                    "pki_dir": d + "/pki", "cachedir": d + "/cache", "sock_dir": d + "/sock", "pidfile": d + "/pid", "log_file": d + "/log", "log_level": "info",
                    "auto_accept": True, "cluster_id": "bench", "cluster_peers": peers, "cluster_pki_dir": self.pki, "cluster_secret": "of this comparison only",
                    "cluster_pool_port": port + 2, "file_roots": {"base": [d + "/roots"]}, "pillar_roots": {"base": [d + "/roots"]}}
            with open(os.path.join(d, "etc/master"), "w") as f:
                json.dump(conf, f)  # JSON is YAML
            self.procs.append(subprocess.Popen([LAB, "exec", str(i), os.path.join(opts.bin, "salt-master"), "-c", d + "/etc"], env=ENV,
                                               stdout=open(d + "/out", "w"), stderr=subprocess.STDOUT, start_new_session=True))
            wait("master %d of %s" % (i, name), 90, lambda: "ready" in open(d + "/out").read())

    def dir(self, i):
        return os.path.join(self.work, self.name, str(i))

    def pid(self, i):
        return open(self.dir(i) + "/pid").read().strip()

    def swarm(self, i, mode, *flags):
        args = [self.opts.swarm, mode, "-master", "%s.1%d" % (NET, i), "-pub-port", self.port, "-ret-port", self.port + 1, "-json", "-pid", self.pid(i),
                "-keys", os.path.join(self.work, "keys"), "-state", os.path.join(self.dir(i), "state.json"), "-prefix", "sw%d" % i] + [f + "m%d-" % i if f.startswith("f") else f for f in map(str, flags)]
        return subprocess.Popen([LAB, "exec", str(i)] + [str(a) for a in args], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def all(self, mode, *flags, root=False):
        """Load on all three masters at once; returns (rate per s, CPU ms per operation)."""
        t = time.time()
        cpu0 = [self.cpu(i) for i in (1, 2, 3)]
        ps = [self.swarm(i, mode, *(list(flags) + (["-root-key", self.dir(i) + "/cache/.root_key"] if root else []))) for i in (1, 2, 3)]
        n = failed = 0
        rate = 0.0
        for p in ps:
            out, err = p.communicate(timeout=600)
            line = next((l for l in reversed(out.splitlines()) if l.startswith("{")), None)
            if line is None:
                raise RuntimeError(out[-2000:] + err[-2000:])
            r = json.loads(line)
            n, failed = n + r["requests"], failed + r["failed"]
            rate += r["rate_per_s"]["median"] if r.get("rate_per_s") else 0
        if failed:
            print("%s %s: %d of %d failed" % (self.name, mode, failed, n), file=sys.stderr)
        cpu = sum(self.cpu(i) - c for i, c in zip((1, 2, 3), cpu0))
        return {"rate": rate, "cpu_ms": 1000 * cpu / max(n, 1), "wall": time.time() - t, "n": n, "failed": failed}

    def files_made(self):
        """Waits until no new key waits to become a file; returns the seconds."""
        t = time.time()
        time.sleep(2.5)  # the status is at most two seconds old
        wait("files of the new keys", 300, lambda: not any(json.load(open(self.dir(i) + "/cache/status.json"))["new_keys"]["waiting"] for i in (1, 2, 3)))
        return time.time() - t

    def cpu(self, i):
        """CPU seconds of the master."""
        out = lab("exec", i, "cat", "/proc/%s/stat" % self.pid(i))
        f = out[out.rindex(")") + 2:].split()
        return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")


def gluster_cpu():
    total = 0
    for i in (1, 2, 3):
        out = lab("exec", i, "sh", "-c", "for p in $(pgrep gluster); do cat /proc/$p/stat; done", check=False)
        for line in out.splitlines():
            f = line[line.rindex(")") + 2:].split()
            total += int(f[11]) + int(f[12])
    return total / os.sysconf("SC_CLK_TCK")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--bin", required=True)
    a.add_argument("--swarm", required=True)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--minions", type=int, default=300, help="for each master")
    a.add_argument("--out")
    opts = a.parse_args()
    opts.bin, opts.swarm = os.path.abspath(opts.bin), os.path.abspath(opts.swarm)
    work = tempfile.mkdtemp(prefix="sbn-", dir="/tmp")
    started = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended below
    lab("down")
    try:
        for i in (1, 2, 3):
            lab("boot", i)
        started += volume(opts, work)
        os.mkdir(os.path.join(work, "shared"))
        clusters = [Cluster("local", os.path.join(work, "shared"), 5505, work, opts), Cluster("volume", "/srv/cluster", 6505, work, opts)]
        for c in clusters:
            started += c.procs
        n = opts.minions
        results = {}
        for r in range(opts.rounds + 1):  # the first round warms up
            for what, run in [
                ("sign-ins, new minions, 16 at once", lambda c: c.all("auth", "-n", n, "-c", 16, "-fresh-ids", "-prefix", "f%d-" % r)),
                ("sign-ins, new minions, 100 at once", lambda c: c.all("auth", "-n", n, "-c", 100, "-fresh-ids", "-prefix", "fa%d-" % r)),
                ("sign-ins, known minions", lambda c: c.all("auth", "-n", n, "-c", 16)),
                ("returns", lambda c: c.all("returns", "-n", n, "-k", 5, "-c", 32, root=True)),
            ]:
                for c in clusters if r % 2 else clusters[::-1]:
                    g = gluster_cpu()
                    x = run(c)
                    if "new minions" in what:
                        x["files"] = c.files_made()
                    x["gluster_ms"] = 1000 * (gluster_cpu() - g) / max(x["n"], 1)
                    if r:
                        results.setdefault(what, {}).setdefault(c.name, []).append(x)
        med = lambda l, k: statistics.median(x[k] for x in l)
        text = ["| | per s, local | per s, volume | local / volume | CPU ms, local | CPU ms, volume | volume / local | CPU ms of GlusterFS |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
        for what, by in results.items():
            l, v = by["local"], by["volume"]
            text.append("| %s | %.0f | %.0f | %.2f | %.2f | %.2f | %.2f | %.2f |" % (what, med(l, "rate"), med(v, "rate"), med(l, "rate") / max(med(v, "rate"), 1e-9),
                        med(l, "cpu_ms"), med(v, "cpu_ms"), med(v, "cpu_ms") / max(med(l, "cpu_ms"), 1e-9), med(v, "gluster_ms")))
        print("\n".join(text))
        print("new keys were files of their own after %.1f s at most" % max(x["files"] for what in results if "new minions" in what for x in results[what]["volume"]))
        print("load %s, %d rounds, %d minions for each master, failed: %s" % (open("/proc/loadavg").read().split()[:3], opts.rounds, n,
              {w: {c: sum(x["failed"] for x in l) for c, l in by.items()} for w, by in results.items()}))
        if opts.out:
            json.dump(results, open(opts.out, "w"), indent=1)
    finally:
        for p in started:
            p.terminate()
        lab("down", check=False)


if __name__ == "__main__":
    main()
