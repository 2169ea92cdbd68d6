"""Writes golden.json: which minions Salt's own matchers select.

python golden.py > golden.json      (a Python that has Salt)
"""
import json
import logging
import sys

import salt.config
import salt.loader
import salt.utils.minions

MINIONS = {
    "web1": ({"os": "Debian", "osmajorrelease": 12, "roles": ["web", "front"], "ipv4": ["127.0.0.1", "10.0.0.1"], "ipv6": ["::1", "fe80::1"], "nested": {"a": {"b": "c", "l": [1, 2, {"x": "y"}]}, "flag": True}, "virtual": "kvm", "weird:key": "v1"},
             {"role": "web", "secret": {"key": "abc", "list": ["x", "y"]}, "n": 5, "t": True, "none": None}),
    "web2": ({"os": "Ubuntu", "osmajorrelease": 24, "roles": ["web"], "ipv4": ["127.0.0.1", "10.0.0.2"], "ipv6": ["::1", "2001:db8::2"], "nested": {"a": {"b": "d"}, "flag": False}, "weird": {"key": "v2"}, "f": 1.5},
             {"role": "WEB", "secret": {"key": "ABD"}, "n": "5", "deep": {"a": {"b": {"c": {"d": "e"}}}}}),
    "db1.example.com": ({"os": "Debian", "osmajorrelease": 11, "roles": ["db"], "ipv4": ["192.168.1.10"], "path": "/a:b:c", "empty": {}, "elist": [], "s": "x y"},
                        {"role": "db", "list": [{"name": "one", "v": 1}, {"name": "two", "v": 2}], "1": "text", "m": {"k": [["in", "side"]]}}),
    "db2.example.com": ({"os": "CentOS", "roles": "db", "ipv4": [], "num": {1: "one", 2: {"x": "z"}}, "b": {True: "yes"}, "fl": {1.5: "half"}},
                        {}),
    "DB3": ({}, {"role": "db"}),
    "a,b": ({"os": "Debian"}, {"x": {"y": None}}),
    "x[1]": ({"os": "windows", "quote": "it's", "dict": {"list": ["a", {"k": "v"}]}}, {"x": {"y": ["1", 1, 1.0]}}),
    "not": ({"os": "Debian"}, {}),
}
NODEGROUPS = {
    "web": "web*", "names": "web1,web2", "list": ["web1", "db1.example.com"], "words": "web1 web2", "comp": "G@os:Debian and not web*",
    "nest": "N@web or N@names", "nestlist": ["N@list", "or", "db2*"], "loop1": "N@loop2 or web1", "loop2": "N@loop1 or web2", "self": "N@self",
    "re": "web[12]", "rewords": ["web[1]", "db?"], "ored": "web1 or db1.example.com", "bad": "N@nosuch or web1", "ops": "not web*", "paren": "( web1 or web2 ) and G@os:Ubuntu",
    "deep": "N@nest and N@comp", "nestnames": "N@words", "empty": "", "pillar": "I@role:web", "mixed": "web1 db*", "nnot": "not N@web",
}
CASES = []


def add(typ, *exprs, **kw):
    for e in exprs:
        CASES.append((typ, e, kw.get("delimiter", ":")))


add("glob", "*", "web*", "web?", "web[12]", "web[!1]", "WEB1", "web1", "", "db*.com", "*.example.com", "x[1]", "x[[]1]", "x[[]1[]]", "[wd]*", "[!w]*", "[a-e]*", "[e-a]*", "web[", "web[1", "a,b", "web1,web2", "[]]*", "[!]]*", "web\\1", "*[0-9]", "db[0-9].*", "?", "???", "n*t", "[^w]*", "[--w]*", "[A-Z]*")
add("pcre", "web", "web\\d", "web\\d$", ".*", "^db", "example", ".*example", "(?i)WEB", "web(1|2)", "db[12]\\.example\\.com", "(?!web).*", "(?=.*2)web", "", "(", "a,b", "web.$", "(?P<x>w)eb(?P=x)?", "db\\d\\b", "\\w+\\d\\Z", "[^w]", "web1|db1", "DB", "(?<!x)web1")
add("list", "web1", "web1,web2", "web1,nosuch", "", ",", "web1,", ",web1", " web1", "web1, web2", "web", "eb1", "a,b", ["web1", "db1.example.com"], ["a,b"], [], ["nosuch"])
add("grain", "os:Debian", "os:debian", "os:*", "os:Deb*", "OS:Debian", "os", "roles:web", "roles:w*", "roles:db", "roles:*", "nested:a:b:c", "nested:a:b:*", "nested:a:b", "nested:a", "nested:*", "nested:*:b", "nested:*:b:c", "nested:flag:true", "nested:flag:True", "nested:flag:1", "nested:a:l:1", "nested:a:l:x:y", "nested:a:l:x", "nested:a:l:2:x:y", "nested:a:l:0:1", "nested:a:l:-1:x:y", "nested:a:*", "*:debian", "*:Debian", "*:a:b:c", "*:*:b", "*:*", "*", "nosuch:*", "nosuch:x", "osmajorrelease:12", "osmajorrelease:1*", "osmajorrelease:>10", "weird:key:v1", "weird:key:v2", "weird:key:*", "weird:*", "path:/a:b:c", "path:/a:*", "path:*", "empty:*", "empty:", "elist:*", "s:x y", "s:x*", "num:1:one", "num:2:x:z", "num:2:x", "num:1", "num:01:one", "num:*:x", "b:True:yes", "b:true:yes", "b:1:yes", "b:yes:yes", "fl:1.5:half", "fl:1.50:half", "f:1.5", "f:1*", "quote:it's", "dict:list:k:v", "dict:list:a", "dict:list:1:k:v", "dict:list:{'k': 'v'}", "virtual:kvm", "virtual:", "ipv4:10.0.0.*", "ipv4:127.0.0.1", "", ":", "::", "os:", ":Debian", "os:Debian:x", "nested:a:l:[*", "nested:a:l:{*", "roles:web:front")
add("grain", "os|Debian", "nested|a|b|c", "nested|a|b", "path|/a:b:c", "weird:key|v1", "ipv6|fe80::1", "os:Debian", "nested|*|b|c", delimiter="|")
add("grain_pcre", "os:(Debian|CentOS)", "os:deb", "os:^D.*n$", "os:.*", "roles:w.b", "nested:a:b:[cd]", "os:(", "osmajorrelease:\\d+", "osmajorrelease:\\D+", "os:(?!deb).*", "os:", "nested:a:b", "nested:.*", "nested:fl", "roles:(web|db)$", "ipv4:10\\.0\\.0\\.\\d", "*:deb", "os:bian", "path:/a:b", "num:1:o")
add("pillar", "role:web", "role:*", "secret:key:ab*", "secret:key:ABC", "n:5", "t:true", "none:none", "none:None", "list:name:one", "list:v:2", "list:1:name:two", "list:*", "deep:a:b:c:d:e", "deep:*:b:c:d:e", "deep:a:*:c", "deep:*", "deep:*:*:*:*", "1:text", "x:y:None", "x:y:1", "x:y:1.0", "m:k:side", "m:k:0:0:in", "m:k:*side*", "secret:list:x", "secret:list:*", "secret", "")
add("pillar_exact", "role:web", "role:*", "role:WEB", "secret:key:abc", "secret:key:ab*", "secret:key", "n:5", "secret:*", "*:web", "list:name:one")
add("pillar_pcre", "role:^w", "role:(web|db)$", "secret:key:ab[cd]", "list:name:(one|three)", "n:\\d", "role:[")
add("ipcidr", "10.0.0.1", "10.0.0.0/24", "10.0.0.0/8", "10.0.0.1/8", "0.0.0.0/0", "192.168.1.10/32", "192.168.1.0/255.255.255.0", "192.168.1.0/0.0.0.255", "::1", "2001:db8::/32", "fe80::/10", "fe80::1/10", "10.0.0", "x", "", "10.0.0.0/33", "010.0.0.1", "2001:0db8:0::2", "::/0", "10.0.0.0/-1", "10.0.0.0/ 8", "10.0.0.0/08")
add("compound", "*", "web1", "web* and G@os:Debian", "web* or db*", "not web*", "not web* and G@os:Debian", "G@os:Debian and not web*", "web* not G@os:Ubuntu", "web1 or db1.example.com and G@os:Ubuntu", "( web1 or db1.example.com ) and G@os:Debian", "not ( web* or db* )", "not ( not web* )", "not not web*", "and web*", "or", "web* and", "web* or", "( web*", "web* )", "( )", "()", "(web*)", "web* web1", "", "not", "( and web* )", "( not web* )", "E@web\\d", "E@web\\d and not E@.*1", "L@web1,web2", "L@web1,nosuch or db1*", "not L@web1", "P@os:(Debian|CentOS)", "I@role:web", "J@role:^w", "J@secret:key:ab[cd]$", "S@10.0.0.0/8", "S@192.168.1.10 or web2", "S@bad", "N@web", "N@names", "N@list", "N@words", "N@comp", "N@nest", "N@nestlist", "N@re", "N@rewords", "N@ored", "N@ored and G@os:Debian", "G@os:Debian and N@ored", "N@ops", "N@paren", "N@deep", "N@nestnames", "N@mixed", "N@nnot", "N@pillar and web*", "not N@web", "N@", "G|@os|Debian", "G@@os@Debian", "G|@nested|a|b|c", "P|@os|(Debian|CentOS)", "I;@secret;key;abc", "G@os", "G@", "X@web1", "g@os:Debian", "G@os:Debian G@os:Debian", "L|@web1", "E@", "E@(", "web* AND db*", "Web1", "a,b", "G@roles:web and ( E@.*1 or I@n:5 )", "( ( web1 ) )", "( web1 or ( db* and G@roles:db ) )", "web1 or or web2", "web1 and not web2", "web1 and or web2", "not G@nosuch:x", "*1 or *2 and not db*", ["web1", "or", "db2.example.com"], ["not", "web1"], ["G@s:x y"], [])
add("nodegroup", *NODEGROUPS.keys())
add("nodegroup", "nosuch", "")

logging.disable(logging.CRITICAL)
base = dict(salt.config.DEFAULT_MINION_OPTS)
out = []
loaded = {}
for mid, (grains, pillar) in MINIONS.items():
    opts = dict(base, id=mid, grains=grains, pillar=pillar, nodegroups=NODEGROUPS, extension_modules="/nonexistent", __role="minion")
    loaded[mid] = (salt.loader.matchers(opts), opts)
for typ, expr, delimiter in CASES:
    found = []
    for mid, (m, opts) in loaded.items():
        args, kw = [expr], {"opts": opts, "minion_id": mid}
        fun = typ
        if typ in ("grain", "grain_pcre", "pillar", "pillar_exact", "pillar_pcre"):
            kw["delimiter"] = delimiter
        try:
            if typ == "nodegroup":
                fun, args = "compound", [salt.utils.minions.nodegroup_comp(expr, NODEGROUPS)]
            if m[fun + "_match.match"](*args, **kw):
                found.append(mid)
        except Exception:  # an exception selects nobody
            pass
    out.append([typ, expr, delimiter, found])


def typed(v):
    if isinstance(v, dict):
        return {"map": [[typed(k), typed(x)] for k, x in v.items()]}
    if isinstance(v, list):
        return [typed(x) for x in v]
    if isinstance(v, float):
        return {"float": v}
    return v


json.dump({"minions": {k: [typed(g), typed(p)] for k, (g, p) in MINIONS.items()}, "nodegroups": typed(NODEGROUPS), "cases": out}, sys.stdout)
sys.stdout.write("\n")
