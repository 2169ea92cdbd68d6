"""Writes golden.json: what Salt's CkMinions permits.

python golden.py > golden.json      (a Python that has Salt)
"""
import fnmatch
import json
import logging
import sys

import salt.utils.minions

IDS = ["web1", "web2", "db1"]


class Check(salt.utils.minions.CkMinions):
    def __init__(self):  # no keys, no cache
        self.opts = {}

    def check_minions(self, expr, tgt_type="glob", delimiter=":", greedy=True, fun=None):
        if tgt_type == "list":
            return {"minions": [i for i in expr if i in IDS], "missing": []}
        return {"minions": [i for i in IDS if fnmatch.fnmatch(i, expr)], "missing": []}


KW = {"__kwarg__": True, "name": "nginx", "n": 5, "b": True}
PERMS = [
    [], ["test.ping"], ["test.*"], [".*"], ["test"], ["ping"], ["("], [""], ["TEST.ping"], ["test\\.ping$"], ["test.ping", "pkg.*"], ["@runner"], ["@wheel"], ["@jobs"],
    [{"*": ["test.*"]}], [{"web*": ["test.*"]}], [{"web*": "test.*"}], [{"web1": ["test.ping"]}, {"web2": ["test.ping"]}], [{"web*": ["test.*"], "db*": ["test.*"]}], [{"": ["test.*"]}], [{"@runner": ["test.*"]}], [{"nosuch": [".*"]}], [{}],
    [{"*": [{"pkg.install": {"args": ["nginx"]}}]}], [{"*": [{"pkg.install": {"args": ["ngin", None]}}]}], [{"*": [{"pkg.*": {"kwargs": {"name": "ng.*"}}}]}], [{"*": [{"pkg.install": {"kwargs": {"n": "5", "b": "True"}}}]}], [{"*": [{"pkg.install": {"kwargs": {"zzz": None}}}]}], [{"*": [{"pkg.install": [{"args": ["a"]}, {"args": ["nginx"]}]}]}], [{"*": [{"pkg.install": {}}]}], [{"*": [{"pkg.install": "x"}]}], [{"*": [{"pkg.install": {"args": ["1"]}}]}], [{"*": [{"pkg.install": {"args": ["nginx"]}, "b": {}}]}],
]
REQUESTS = [
    (["test.ping"], [[]], ["web1"]), (["test.ping"], [[]], ["web1", "web2"]), (["test.ping"], [[]], ["web1", "db1"]), (["test.ping"], [[]], []),
    (["pkg.install"], [["nginx"]], ["web1"]), (["pkg.install"], [["nginx", KW]], ["web1"]), (["pkg.install"], [[KW]], ["web1"]), (["pkg.install"], [["evil"]], ["web1"]), (["pkg.install"], [[1]], ["web1"]), (["pkg.install"], [[1.5, True, None]], ["web1"]), (["cmd.run"], [["id"]], ["web1"]),
]
SPECIAL = [[], ["@runner"], ["@runners"], ["@wheel"], ["@wheels"], ["@jobs"], ["@job"], ["jobs.*"], [".*"], [{"@jobs": ["list_.*"]}], [{"@jobs": "active"}], [{"@runner": ["jobs.list_jobs"]}], [{"@runners": ["jobs.*"]}], [{"@wheel": ["key.*"]}], [{"@jobs": [{"lookup_jid": {"kwargs": {"jid": "2026.*"}}}]}], [{"@runner": [{"jobs.lookup_jid": {"args": ["2026"]}}]}], [{"@jobs": [".*"], "@key": [".*"]}], [{"@": [".*"]}], ["@"]]
CALLS = [("jobs.active", {}), ("jobs.list_jobs", {}), ("key.accept", {"kwarg": {"match": "*"}}), ("jobs.lookup_jid", {"kwarg": {"jid": "20260101"}}), ("jobs.lookup_jid", {"kwarg": {"jid": "1"}}), ("jobs.lookup_jid", {"arg": ["20260101"]}), ("jobs", {}), ("a.b.c", {})]
SECTIONS = [{"fred": ["a"], "*": ["z"]}, {"fr*": ["a"], "*": ["z"]}, {"admins%": ["g"], "fred": ["a"]}, {"*": ["z"], "users%": ["u"]}, {"fred": ["a"], "bob": ["b"]}, {"fre.": ["r"]}, {"FRED": ["x"]}, {}]
NAMES = ["fred", "bob", "freD", ""]  # not a pattern: Salt takes the name for one, see FillAuthList

logging.disable(logging.CRITICAL)
ck = Check()
out = {"publish": [], "special": [], "fill": []}
for perms in PERMS:
    for funs, args, minions in REQUESTS:
        got = ck.auth_check(perms, funs, args, minions, "list", minions=minions)
        out["publish"].append([perms, funs, args, minions, got])
for perms in SPECIAL:
    for fun, args in CALLS:
        for form in ("runner", "wheel"):
            try:
                got = ck.spec_check(perms, fun, args, form) is True
            except IndexError:
                got = False
            out["special"].append([perms, fun, args, form, got])
for section in SECTIONS:
    for name in NAMES:
        out["fill"].append([section, name, ["admins"], ck.fill_auth_list(section, name, ["admins"], permissive=False)])
json.dump(out, sys.stdout)
sys.stdout.write("\n")
