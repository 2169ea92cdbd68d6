#!/usr/bin/env python3
"""Times a job of state.apply for thousands of scripted minions whose pillars are 21 templates.

    highstate.py --go bin/salt-master --renderer-python VENV/bin/python --swarm SWARM [--before OTHER/salt-master] [--python VENV/bin/salt-master]

Each minion asks for its pillar (a top file with Jinja and twenty SLS with templates), reads a top file
and a state file, and returns, as a real one does. The masters take turns; one is stopped before the next one
starts. --before is a salt-master of ours as it was before a change. Wall time is from the first publish that came to
the last return that was acknowledged. A minion that gets no answer within a minute asks again, three times in all, as
real ones do.
"""
import argparse, json, os, shutil, sys, tempfile

from master import Master

TOP = """base:
  '*':
{% for i in range(20) %}
    - s{{ i }}
{% endfor %}
  'role:{{ grains.role }}':
    - match: grain
    - s0
"""

SLS = """{% set pkg = salt['grains.filter_by']({'Debian': {'name': 'apache2'}, 'RedHat': {'name': 'httpd'}}, grain='os_family') %}
service@:
  package: {{ pkg.name }}
  role: {{ grains['role'] }}
  site: {{ salt['grains.get']('location:site', 'none') }}
  port: {{ salt['pillar.get']('ports:service@', 8000 + @) }}
{% if grains.role in ('role1', 'role3') %}
  tuned: {{ grains.get('num_cpus', 1) * 2 }}
{% endif %}
  workers:
{% for i in range(10) %}
    - {name: w{{ i }}, queue: {{ grains['role'] }}-{{ i }}, tags: {{ grains['roles'] | tojson }}}
{% endfor %}
"""


class Applied(Master):
    """A master with the pillar, and one state file for all minions."""

    def __init__(self, name, binary, work, port, extra, opts):
        super().__init__(name, binary, work, port, extra, opts)
        files = {"pillar/top.sls": TOP, "roots/states/f0.sls": "base:\n  '*':\n    - states.f1\n", "roots/states/f1.sls": "one:\n  test.nop: []\n"}
        files.update({"pillar/s%d.sls" % i: SLS.replace("@", str(i)) for i in range(20)})
        for path, text in files.items():
            path = os.path.join(self.dir, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)


def apply(m, o):
    """One job; the minions have signed in before."""
    r = m.run("hold", "-n", o.minions, "-drive", 1, "-fun", "state.apply", "-highstate", "-expect", "service19", "-grain-size", 3000,
              "-path", "states/f%d.sls", "-k", 2, "-tries", 3, "-req-timeout", "60s", "-timeout", "%ds" % o.seconds, root=True)
    job = r["jobs"][0] if r.get("jobs") else {}
    returned = job.get("returned", 0)
    return {"returned": returned, "failed": r["failed"], "seconds": round(job.get("pub_to_last_ret_ms", 0) / 1000, 1), "cpu_s": round(r["cpu_s"], 1),
            "cpu_ms_each": round(1000 * r["cpu_s"] / max(1, returned), 1), "errors": r.get("errors")}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--go", required=True)
    ap.add_argument("--before", default="", help="a salt-master of ours to compare with")
    ap.add_argument("--python", default="", help="Salt's salt-master")
    ap.add_argument("--renderer-python", required=True)
    ap.add_argument("--swarm", required=True)
    ap.add_argument("--rounds", type=int, default=1)
    ap.add_argument("--minions", type=int, default=3000)
    ap.add_argument("--memo", action="store_true", help="measure saltern_pillar_memo as well")
    ap.add_argument("--seconds", type=int, default=850, help="the most that one job gets")
    o = ap.parse_args()
    work = tempfile.mkdtemp(prefix="saltern-highstate-")
    ours = "saltern_renderer_python: %s\nsaltern_pillar_check: -1\n" % o.renderer_python
    kinds = [("go", o.go, ours)]
    if o.memo:
        kinds.append(("memo", o.go, ours + "saltern_pillar_memo: True\n"))
    if o.before:
        kinds.append(("before", o.before, ours))
    if o.python:
        kinds.append(("python", o.python, "worker_threads: 5\n"))
    masters = [Applied(name, os.path.abspath(binary), work, 27905 + 10 * i, extra, o) for i, (name, binary, extra) in enumerate(kinds)]
    try:
        for _ in range(o.rounds):
            for m in masters:
                m.start()
                m.run("signin", "-n", o.minions, "-timeout", "300s")
                m.run("pillar", "-n", 1, "-k", 1, "-expect", "service19")  # Python starts
                print(m.name, "load", os.getloadavg()[0], json.dumps(apply(m, o)), flush=True)
                m.stop()
                m.proc = None
    finally:
        for m in masters:
            m.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
