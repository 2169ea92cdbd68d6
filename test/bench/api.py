#!/usr/bin/env python3
"""Compares salt-api with Salt's rest_cherrypy on one machine, beside one master.

Both programs run at the same time, on loopback, with the same configuration,
token and minion; each measurement is made for the one and then at once for the
other. The figure to compare is the CPU time of the program's process tree per
operation: what the master and the load generator use is not in it.

    api.py --bin bin --venv VENV --swarm SWARM [--rounds 3] [--seconds 5] [--readers 500]
"""
import argparse, http.client, json, os, shutil, signal, socket, statistics, subprocess, sys, tempfile, threading, time

from master import Master

READING_USERS = 10  # one gets half of the places for readers that are left
PYTHON_READERS = 200  # each has a reader of its own at the master, which takes 256


class API(Master):
    """A salt-api; process tree and CPU are found as for a master."""

    def __init__(self, name, binary, master, port):
        self.name, self.binary, self.port, self.dir = name, binary, port, os.path.join(master.dir, name)
        os.makedirs(os.path.join(self.dir, "etc"))
        pool = "  thread_pool: 260\n" if name == "python" else ""
        with open(os.path.join(self.dir, "etc/master"), "w") as f:
            f.write("include: %s/etc/master\napi_pidfile: %s/pid\napi_logfile: %s/log\n" % (master.dir, self.dir, self.dir))
            f.write("netapi_enable_clients: [local]\nrest_cherrypy:\n  host: 0.0.0.0\n  port: %d\n  disable_ssl: true\n%s" % (port, pool))

    def start(self):
        self.proc = subprocess.Popen([self.binary, "-c", os.path.join(self.dir, "etc"), "-l", "error"],
                                     stdout=open(os.path.join(self.dir, "out"), "ab"), stderr=subprocess.STDOUT, start_new_session=True)
        end = time.time() + 60
        while True:
            try:
                return self.login(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30))
            except (OSError, RuntimeError, http.client.HTTPException):
                if time.time() > end:
                    raise RuntimeError("%s does not answer, see %s/out" % (self.name, self.dir))
                time.sleep(0.2)

    def post(self, c, path, body, token=""):
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json", "Accept": "application/json", "X-Auth-Token": token})
        r = c.getresponse()
        text = r.read()
        if r.status != 200:
            raise RuntimeError("%s: %s %d %s" % (self.name, path, r.status, text[:300]))
        return json.loads(text)["return"][0]

    def login(self, c, user="ann"):
        return self.post(c, "/login", {"username": user, "password": "right", "eauth": "sharedsecret"})["token"]

    def pss(self):
        """MiB of the tree."""
        kib = 0
        for pid in self.pids():
            try:
                with open("/proc/%d/smaps_rollup" % pid) as f:
                    kib += next(int(l.split()[1]) for l in f if l.startswith("Pss:"))
            except FileNotFoundError:
                pass
        return kib / 1024

    def load(self, call, clients, seconds):
        """Has clients call as fast as they can; calls a second, CPU ms each."""
        ends, done, faults = time.time() + seconds, [0] * clients, []

        def client(i):
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                while time.time() < ends:
                    call(self, c)
                    done[i] += 1
            except Exception as e:  # told below: a measurement with faults is none
                faults.append(e)

        before, began = self.rest(), time.time()
        all = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
        [t.start() for t in all]
        [t.join() for t in all]
        wall = time.time() - began
        if faults:
            raise faults[0]
        return sum(done) / wall, 1000 * (self.rest() - before) / sum(done)

    def readers(self, n, fire):
        """PSS per reader of events, and seconds until all have an event."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        tokens = [self.login(c, "reader%d" % i) for i in range(READING_USERS)]
        before, all = self.pss(), []
        try:
            for i in range(n):
                s = socket.socket()
                s.settimeout(60)
                s.connect(("127.0.0.1", self.port))
                s.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\nX-Auth-Token: %s\r\n\r\n" % tokens[i % len(tokens)].encode())
                all.append(s)
            for s in all:
                if b" 200 " not in s.recv(4096).split(b"\r\n")[0]:
                    raise RuntimeError("%s refuses a reader of events" % self.name)
            time.sleep(4)
            after, cpu, began = self.pss(), self.rest(), time.time()
            fire()
            for s in all:
                seen = b""
                while b"/ret/" not in seen:
                    more = s.recv(65536)
                    if not more:
                        raise RuntimeError("%s cut a reader of events" % self.name)
                    seen = seen[-64:] + more
            wall = time.time() - began
            return 1024 * (after - before) / n, before, after, wall, 1000 * (self.rest() - cpu) / n
        finally:
            [s.close() for s in all]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--bin", required=True)
    ap.add_argument("--venv", required=True)
    ap.add_argument("--swarm", required=True)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--seconds", type=float, default=5)
    ap.add_argument("--readers", type=int, default=400)
    o = ap.parse_args()
    work = tempfile.mkdtemp(prefix="saltern-bench-")
    master = Master("go", os.path.abspath(os.path.join(o.bin, "salt-master")), work, 27805,
                    "timeout: 5\nexternal_auth: {sharedsecret: {'*': ['.*', '@events']}}\nsharedsecret: right\n", o)
    apis = [API("go", os.path.abspath(os.path.join(o.bin, "salt-api")), master, 27810), API("python", os.path.join(o.venv, "bin/salt-api"), master, 27811)]
    minion = None

    def row(name, unit, go, python, higher, note=""):
        g, p = statistics.median(go), statistics.median(python)
        print("| %s | %s | %.3g | %.3g | %.1f | %s |" % (name, unit, g, p, g / p if higher else p / g, note), flush=True)

    try:
        master.start()
        ready = os.path.join(work, "ready")
        minion = subprocess.Popen([o.swarm, "hold", *master.where(), "-n", "1", "-prefix", "m", "-timeout", "10m", "-ready-file", ready], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.time() + 30
        while not os.path.exists(ready):
            if time.time() > end:
                raise RuntimeError("the minion does not connect")
            time.sleep(0.1)
        tokens = {a.name: a.start() for a in apis}
        ping = [{"client": "local", "tgt": "m0", "fun": "test.ping"}]

        def call(a, c):
            if a.post(c, "/", ping, tokens[a.name]) != {"m0": True}:
                raise RuntimeError("%s: the minion does not answer" % a.name)

        def login(a, c):
            a.login(c)

        print("| measure | unit | salt-api | rest_cherrypy | ratio | |\n| --- | --- | --- | --- | --- | --- |", flush=True)
        row("memory at the start", "MiB PSS", [apis[0].pss()], [apis[1].pss()], False)
        for name, what, clients in (("`local` `test.ping`, one client", call, 1), ("`local` `test.ping`, 4 clients", call, 4), ("log-in, 4 clients", login, 4)):
            [a.load(what, clients, 1) for a in apis]  # not measured
            got = {a.name: [] for a in apis}
            for rnd in range(o.rounds):
                for a in apis if rnd % 2 == 0 else reversed(apis):
                    got[a.name].append(a.load(what, clients, o.seconds))
            row(name, "a second", [v[0] for v in got["go"]], [v[0] for v in got["python"]], True)
            row(name, "CPU ms each", [v[1] for v in got["go"]], [v[1] for v in got["python"]], False)
        # Of the many log-ins the newest thousand of a user are kept.
        tokens = {a.name: a.login(http.client.HTTPConnection("127.0.0.1", a.port, timeout=60)) for a in apis}

        def fire():
            call(apis[0], http.client.HTTPConnection("127.0.0.1", apis[0].port, timeout=60))

        n = {"go": o.readers, "python": min(o.readers, PYTHON_READERS)}
        r = {a.name: a.readers(n[a.name], fire) for a in apis}
        note = "%d and %d readers" % (n["go"], n["python"])
        row("reader of `/events`", "KiB PSS each", [r["go"][0]], [r["python"][0]], False, note + "; from %.1f to %.1f MiB, from %.0f to %.0f MiB" % (r["go"][1:3] + r["python"][1:3]))
        row("a job's events to all readers", "s", [r["go"][3]], [r["python"][3]], False, note)
        row("a job's events", "CPU ms a reader", [max(r["go"][4], 0.001)], [max(r["python"][4], 0.001)], False, note)
    finally:
        if minion:
            minion.send_signal(signal.SIGTERM)
            minion.wait()
        for a in apis:
            if getattr(a, "proc", None):
                a.stop()
        master.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
