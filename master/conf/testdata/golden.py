"""Writes golden.json: the options that Salt makes of some configurations.

python golden.py > golden.json      (a Python that has Salt)
"""
import json
import logging
import os
import shutil
import sys
import tempfile

import salt.config

CASES = {
    "empty": {"master": "id: m\n"},
    "root": {"master": "id: m\nroot_dir: @DIR@/r\nlog_file: file:///dev/log\nautosign_file: /etc/salt/autosign.conf\npki_dir: @DIR@/r/pki\ncachedir: cache\n"},
    "rootlog": {"master": "id: m\nroot_dir: @DIR@/r\nlog_dir: /logs\n"},
    "logdir": {"master": "id: m\nlog_dir: /logs\nlog_file: x.log\n"},
    "include": {"master": "id: m\npeer: {a: [x]}\ntimeout: 3\ninclude: extra/*.conf\n", "master.d/b.conf": "timeout: 7\nlist: [1, 2]\npeer: {b: [y]}\n", "master.d/a.conf": "timeout: 6\nlist: [2, 3]\npeer: {c: [z]}\n", "master.d/.hidden.conf": "timeout: 99\n", "master.d/z.txt": "timeout: 98\n", "extra/1.conf": "worker_threads: 9\ninclude: ../more.conf\n", "more.conf": "worker_threads: 11\nfailhard: yes\n"},
    "defaultinclude": {"master": "id: m\ndefault_include: conf.d/[!x]*.conf\n", "conf.d/a.conf": "timeout: 8\n", "conf.d/x.conf": "timeout: 9\n"},
    "schedule": {"master": "id: m\n", "master.d/a.conf": "schedule: {x: {function: a, minutes: 1}}\n", "master.d/b.conf": "schedule: {y: {function: b}}\n"},
    "numericid": {"master": "id: 12\n"},
    "minionid": {"master": "root_dir: @DIR@\n", "etc/salt/minion_id": "cached.id\n"},
    "domain": {"master": "id: m\nappend_domain: example.com\n"},
    "domainhas": {"master": "id: m.example.com\nappend_domain: example.com\n"},
    "roots": {"master": "id: m\nfile_roots:\n  base: [/a, '@DIR@/g/*']\n  dev:\n  text: /x\npillar_roots: {base: [/p]}\n", "g/one/f": "", "g/two/f": "", "g/.dot/f": ""},
    "backends": {"master": "id: m\nfileserver_backend: [git, roots, minion, hg]\n"},
    "cluster": {"master": "id: m\ncluster_id: c\n"},
    "clusterpeers": {"master": "id: m\ncluster_id: c\ncluster_peers: [a, b]\ncluster_pki_dir: /x\n"},
    "nocluster": {"master": "id: m\ncluster_peers: [a]\ncluster_pki_dir: /x\n"},
    "clusterport": {"master": "id: m\ncluster_port: 4999\n"},
    "nodegroups": {"master": "id: m\nnodegroups:\n"},
    "nodegrouplist": {"master": "id: m\nnodegroups:\n  - a: 'L@x,y'\n  - b: [x, y]\n"},
    "ignore": {"master": "id: m\nfile_ignore_regex: '/\\.svn($|/)'\nfile_ignore_glob: '*.pyc'\n"},
    "ignorelist": {"master": "id: m\nfile_ignore_regex: ['a', '(b']\nfile_ignore_glob: ['*.pyc', '*~']\n"},
    "sock": {"master": "id: m\ncachedir: /c\nsock_dir: /very/long/path/for/sockets\n"},
    "extmods": {"master": "id: m\nextension_modules: ''\ncachedir: /c\n"},
    "hash": {"master": "id: m\nhash_type: SHA512\nssl: false\n"},
    "rest": {"master": "id: m\nexternal_auth: {rest: {^url: http://x}}\n"},
    "environment": {"master": "id: m\nenvironment: dev\n"},
    "peerthreads": {"master": "id: m\npeer: {.*: [test.ping]}\nworker_threads: 1\n"},
    "yamlrules": {"master": "id: m\nauto_accept: on\ntimeout: 1:30\nkeep_jobs_seconds: 0600\nunknown: {a: 1, 2: b}\ntoken_dir: /x\n"},
    "ipc": {"master": "id: m\nipc_write_buffer: 1048576\n"},
}
IGNORE = {"__cli", "user", "ssh_config_file", "worker_pools", "ssh_minion_opts", "features"}


def plain(v):
    if hasattr(v, "items"):
        return {str(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)) or (hasattr(v, "__iter__") and not isinstance(v, str)):
        return [plain(x) for x in v]
    return v


def run(files):
    d = tempfile.mkdtemp(dir="/tmp", prefix="s")
    try:
        for name, text in files.items():
            p = os.path.join(d, name)
            os.makedirs(os.path.dirname(p), exist_ok=True)
            with open(p, "w") as f:
                f.write(text.replace("@DIR@", d))
        opts = plain(dict(salt.config.master_config(os.path.join(d, "master"))))
        return json.loads(json.dumps(opts).replace(d, "@DIR@"))
    finally:
        shutil.rmtree(d)


logging.disable(logging.CRITICAL)
base = None
out = []
for name, files in CASES.items():
    opts = {k: v for k, v in run(files).items() if k not in IGNORE}
    if base is None:
        base = opts
        out.append({"name": name, "files": files, "opts": opts})
    else:
        diff = {k: v for k, v in opts.items() if k not in base or base[k] != v}
        out.append({"name": name, "files": files, "opts": diff, "gone": [k for k in base if k not in opts]})
json.dump(out, sys.stdout, indent=0)
sys.stdout.write("\n")
