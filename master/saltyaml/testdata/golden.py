"""Writes golden.json: what Salt 3008's own loader and dumper make of each input.

Run it with a Python that has Salt:  python golden.py > golden.json
"""
import base64
import json
import math
import sys

import salt.utils.yaml

SCALARS = """
yes Yes YES no No NO on On ON off Off OFF true True TRUE false False FALSE yEs oN y Y n N
null Null NULL ~ nULL none None = << @x `x %x
0 -0 +0 1 -1 +1 12 0644 -0644 +0644 0755 007 08 09 -08 0_7 00 000 0000 00_ 0_ -0_ -0_0 1_000 1__0 _1 1_ 0b101 0b -0b11 0b1_0 0b12 0B1
0x1F 0xff 0x -0x1f 0x_ 0xg 0X1F 0o14 0o 0b_ 123456789012345678901234567890 -123456789012345678901234567890
9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 18446744073709551615 18446744073709551616
1:30 12:30:45 1:60 1:5 1:05 01:30 1:30:99 -1:30 +1:30 1:30. 1:30.5 -1:30.5 0:30 0:30.5 1:2:3:4 1_0:30 190:20:30 1:000 1:59:59.999 10:20 22:22 99999999999:59:59
1.0 1. .5 -.5 +.5 1.5e3 1.5e+3 1.5E-3 1e3 1e+3 1E3 .5e+1 .5e1 ._5 0.0 -0.0 1_0.5_0 1.2.3 1..2 . .. ... - -- -a .inf -.inf +.inf .Inf .INF .iNf inf .nan .NaN .NAN -.nan nan 1.7976931348623157e+309
0.1 3.14 123.456e+10 08.5 0x1.5 1e400 1.0e+400 4.9e-324 5.0e-324
2026-01-02 2026-1-2 2026-01-02T03:04:05Z 2026-01-02T03:04:05+01:00 2026 20:26 2026-01
a a:b a::b http://x.y/z :a a: a#b a-b -1a 1a 1-2 +a + ++1 +-1 1+1 0x1F_FF 0_8 1,000 1.000,5 é ☃ 😀 10.0.0.1 10.0.0.0/8 fe80::1 ::1 00:11:22:33:44:55 12e03 1e 685230.15
""".split()

DOCS = [
    "", "\n", "# only a comment\n", "---\n", "---\n...\n", "--- a\n", "a\n...\n", "a\n---\n", "a\n---\nb\n", "---\n---\n", "%YAML 1.1\n---\na\n", "%YAML 1.2\n---\nyes\n",
    "a: 1\nb: 2\n", "b: 1\na: 2\nc: [1, yes, 0644]\n", "a: 1\na: 2\n", "1: a\ntrue: b\n", "1: a\n1.0: b\n", "0: a\nno: b\n", "1: a\n'1': b\n", "yes: 1\non: 2\n",
    "~: a\n", "null: a\n~: b\n", "1.5: a\n", "? a\n: b\n", "? [a, b]\n: c\n", "? {a: b}\n: c\n", "{{ a }}: b\n", "{{ a }}\n", "a: {{ b }}\n", "a: {b: c, d}\n", "[a, b: c, d]\n", "{a, b}\n", "{a: , b: }\n", "[a, , b]\n", "[a, b, ]\n", "[]\n", "{}\n",
    "a: b: c\n", "a: 'b\n", "a: \"b\n", "a:\tb\n", "a:\n\tb: c\n", "\ta: b\n", "a: b\n c: d\n", "a:\n  - b\n - c\n", "- a\n- b\n  - c\n", "- a: 1\n  b: 2\n- c\n", "a:\n- 1\n- 2\nb: 3\n", "- - a\n  - b\n- - c\n", "a: [1, 2\n", "a: {b\n", "a: ]\n", "a: |\n  x\n  y\n", "a: |-\n  x\n  y\n", "a: |+\n  x\n\n\nb: c\n", "a: >\n  x\n  y\n\n  z\n", "a: >-\n  x\n    y\n  z\n", "a: |2\n    x\n   y\n", "a: |\n", "a: >\n\n", "a: | # comment\n  x\n",
    "a: 'it''s'\n", 'a: "x\\ty\\n\\u263a\\x41\\N"\n', 'a: "x\n  y\n\n  z"\n', "a: 'x\n  y'\n", "a: x\n  y\n  z\n", 'a: "\\q"\n', 'a: "\\/"\n', "a: 'yes'\n", 'a: "1"\n', "'yes': 1\n", "a: !!str 1\n", "a: !!str yes\n", "a: !!str\n", "a: !!int '12'\n", "a: !!int '0644'\n", "a: !!int '0o14'\n", "a: !!int ''\n", "a: !!int x\n", "a: !!int ' 12 '\n", "a: !!float 1\n", "a: !!float 1e3\n", "a: !!float x\n", "a: !!float ''\n", "a: !!float '1:30'\n", "a: !!float inf\n", "a: !!float 0x10\n", "a: !!bool yes\n", "a: !!bool 'TRUE'\n", "a: !!bool maybe\n", "a: !!null x\n", "a: !!null [x]\n", "a: !!timestamp 2026-01-02\n", "a: !!timestamp x\n",
    "a: !!binary aGVsbG8=\n", "a: !!binary aGVsbG8\n", "a: !!binary a1b2c3\n", "a: !!binary |\n  aGVs\n  bG8=\n", "a: !!binary ''\n", "a: !!binary '*'\n", "a: !!binary a\n", "a: !!binary é\n", "a: !!binary [x]\n", "!!binary YQ==: b\n", "a: !!binary aGVsbG8=aGVs\n", "a: !!binary aG VsbG8=\n",
    "a: !!set {x, y}\n", "a: !!set\n  ? x\n  ? y\n", "a: !!set [x]\n", "a: !!omap\n- x: 1\n- y: 2\n", "a: !!omap {x: 1}\n", "a: !!omap [x]\n", "a: !!pairs [x: 1, x: 2]\n", "a: !!pairs [{x: 1, y: 2}]\n", "a: !!seq [1]\n", "a: !!seq x\n", "a: !!map {b: c}\n", "a: !!map [b]\n", "a: !!str [b]\n", "a: !!str {=: b}\n", "a: !!str {b: c}\n", "a: !foo bar\n", "a: !!python/object:os.system x\n", "a: !!python/unicode x\n", "a: !!python/tuple [x]\n", "a: !!js/regexp x\n", "a: !<tag:yaml.org,2002:int> '3'\n", "a: !<tag:example.com:x> 3\n", "%TAG !e! tag:yaml.org,2002:\n---\na: !e!int '3'\n", "a: ! 12\n", "a: ! yes\n", "a: &x ! 12\nb: *x\n", "a: ! [1]\n", "a: ! {b: 1}\n", "- ! 1\n- 1\n",
    "a: =\n", "=: a\n", "{=: a, b: c}\n", "a: <<\n", "'<<': a\n", "a: !!merge x\n", "[<<]\n", "[=]\n",
    "a: &x 1\nb: *x\n", "a: &x [1, 2]\nb: *x\n", "a: *x\n", "a: &x 1\nb: &x 2\n", "&a a: *a\n", "&a a: 1\n*a : 2\n", "- &a a\n- {*a : b}\n", "a: &x\nb: *x\n", "a: &x {b: 1}\nc: {<<: *x}\n", "a: &x {b: 1}\nc: {<<: *x, b: 2}\n", "a: &x {b: 1}\nc: {b: 2, <<: *x, d: 3}\n", "a: &x {b: 1}\ny: &y {c: 2}\nd: {<<: [*x, *y], e: 3}\n", "a: &x {b: 1}\ny: &y {b: 2}\nd: {<<: [*x, *y]}\n", "a: &x {b: 1}\ny: &y {b: 2}\nd: {<<: [*x, *y], b: 3}\n", "a: {<<: 1}\n", "a: {<<: [1]}\n", "a: {<<: {b: 1}}\n", "a: {<<: {b: 1}, <<: {c: 2}}\n", "a: {<<: {b: 1}, <<: {b: 2}}\n", "a: &x {b: 1}\nc: &y {<<: *x, d: 2}\ne: {<<: *y}\nf: *y\n", "a: {<<: {'1': x}, 1: y}\n", "a: {<<: {1: x}, '1': y}\n", "a: {<<: []}\n", "<<: {a: 1}\nb: 2\n",
    "a: !!set {<<: {x: }, y: }\n",
    "\ufeffa: 1\n", "a: 1\r\nb: 2\r\n", "a: 1\rb: 2\r", "a: x\u0085b: y\n", "a: x\u2028y\n", "a: \x01\n", "a: \x7f\n", 'a: "\x01"\n', "a: \u00a0x\n", "a: \ud7ff\n", "a: \ufffe\n", "a: b # c\n", "a: b#c\n", "a: 'b' # c\n", "a: 'b'#c\n", "a: 'b' c\n", "# x\na: 1\n# y\nb: 2 # z\n", "a:\n  # c\n  - 1\n  # d\n  - 2\n", "a: b\n# c\n\n\n", "{a: 1, # x\n b: 2}\n", "{\"a\":1}\n", "{a:1}\n", "{'a':1}\n", "[a:b]\n", "{a: b:c}\n", "[http://a/b]\n", "{a: 10:20}\n", "a: -\n", "a: - b\n", "-\n-\n", "- \n", "-a\n", "?\n", "? a\n", ": a\n", "a :b\n", "a : b\n", "a:\n\nb:\n", "a: @x\n", "a: `x\n", "a: %x\n", "%x\n", "a: &\n", "a: *\n", "a: !\n", "a: |x\n", "a: [b]c\n", "a: {b: c}d\n", "'a': b\n\"c\": d\n", "a b c: d\n", "? |\n  x\n: y\n", "a: ''\n", 'a: ""\n', "a:    \n", "'': a\n", ": \n", "a: 'x\\y'\n", "a: x y  z\n", "a:\n  b:\n    c: {d: [e, {f: g}]}\n",
    "base:\n  '*':\n    - core\n    - match: glob\n  'G@os:Debian and web*':\n    - match: compound\n    - web\n",
    "apache:\n  pkg.installed: []\n  service.running:\n    - require:\n      - pkg: apache\n    - watch:\n      - file: /etc/x\n",
    "x:\n  file.managed:\n    - mode: 0644\n    - contents: |\n        a\n          b\n    - user: root\n",
    "interface: 0.0.0.0\nauto_accept: True\nworker_threads: 5\nfile_roots:\n  base:\n    - /srv/salt\ntimeout: 5\n",
    "a" * 2000 + ": 1\n", "a: " + "b " * 500 + "\n", "? " + "k" * 1100 + "\n: v\n", "[" * 50 + "]" * 50 + "\n", "- a\n-b\n", "a: 1\n- b\n", "- a\nb: 1\n", "a: 1\nb\n", "b\na: 1\n", "a: \"b\"\n  c: d\n", "a: >\n x\n\n\n y\n", "a: 'x\n\n\n y'\n", "--- |\n x\n", "--- >\n x\n y\n", "---\na: 1\n...\n# end\n", "a: 1\n...\nb\n", "--- {a: 1}\n--- {b: 1}\n", "a: 1 \n \n", "a: 1\n  \n  # x\nb: 2\n", "a:\n- b\n-  c\n", "a: [\n1,\n2\n]\n", "a: [\n1,\n2]\nb: 3\n", "a: {\nb: 1\n}\n", "a:\n  ? b\n  ? c\n", "a: \"\\U0001F600\"\n", "a: 😀\n", "😀: a\n",
]

DUMPS = [
    None, True, False, 0, -5, 10**30, 1.0, 0.1, 1e17, 1e-7, 1.5e300, float("inf"), -float("inf"), -0.0, "", " ", "a", "a b", "yes", "null", "~", "1", "1.5", "0644", "0o14", "1e3", "2026-01-02", "1:30", "=", "<<", "a: b", "a:b", "a:", ":a", "- a", "-a", "-", "--", "---", "--- a", "...", "...a", "#a", "a #b", "a#b", "'a'", '"a"', "it's", "a,b", "[a]", "a[b]", "{a}", "a{b}", "&a", "*a", "!a", "|a", ">a", "%a", "@a", "`a", "?a", "? a", "?", ",a", "a?", "a\nb", "a\n", "\na", "a\n\nb\n", "a\tb", "\ta", "a\t", " a", "a ", "a  b", "a \nb", "a\n b", "é", "☃", "😀", "\x00", "\x1b[0m", "\x7f", "\x85", "\xa0", "\u2028", "\ufeff", "a\\b", "\\", "a\r\nb", "x" * 100, "word " * 40, "word  " * 40, "it's a long line: " * 10, "tab\there " * 20, "line\n" * 3, "a long line with a break " * 5 + "\n" + "and another one " * 10, "é" * 90 + " é" * 30, "quoted: " + "☃ " * 60,
    [], {}, [[]], [{}], {"a": {}}, {"a": []}, [1, 2], {"a": 1}, {"b": 1, "a": 2}, {"a": [1, [2, 3], {"b": 4}]}, [[1, 2], [3, [4]]], [{"a": 1, "b": 2}, {"c": [1]}], {"a": {"b": {"c": [{"d": None}]}}}, {1: "a", 2: "b"}, {True: 1}, {None: 1}, {1.5: "x"}, {"": 1}, {"yes": 1}, {"a b": 1}, {"a\nb": 1}, {"k" * 130: 1}, {"k" * 120: [1]}, {"a": "x\ny\n"}, {"a": "word " * 40}, {"a": b"\x00\xff" * 3}, {"a": b"\xff" * 100}, b"\xff", {"a": "- b"}, ["a: b", "- c"], {"a": " x"}, {"a": "é"}, {"? a": 1}, {"min1": {"ret": True, "retcode": 0}, "min2": False}, [None, True, 1.5, "x"], {"a": {"b": "long text " * 12}}, [["long text " * 12]], {"a": "it's: " * 20}, {"b": 1, 2: 3}, {"😀": "😀"}, {"a": ["x\n", "", " "]}, {"word " * 20: 1}, {"a": "x" * 78 + " y"}, {"a": "'" * 5 + " " + "x" * 80 + " y"},
]


def typed(v):
    if v is None:
        return ["n"]
    if isinstance(v, bool):
        return ["b", v]
    if isinstance(v, int):
        return ["i", str(v)]
    if isinstance(v, float):
        return ["f", "nan" if math.isnan(v) else v.hex()]
    if isinstance(v, bytes):
        return ["y", base64.b64encode(v).decode()]
    if isinstance(v, str):
        return ["s", v]
    if isinstance(v, set):
        return ["l", [typed(x) for x in sorted(v)]]
    if isinstance(v, (list, tuple)):
        return ["l", [typed(x) for x in v]]
    if isinstance(v, dict):
        return ["m", [[typed(k), typed(x)] for k, x in v.items()]]
    raise TypeError(type(v))


def load(text):
    try:
        return {"in": text, "out": typed(salt.utils.yaml.safe_load(text))}
    except Exception as exc:  # any exception is a refusal
        mark = getattr(exc, "problem_mark", None)
        return {"in": text, "err": type(exc).__name__, "line": mark.line + 1 if mark else 0}


def dump(value, **kwargs):
    try:
        return salt.utils.yaml.safe_dump(value, **kwargs)
    except Exception:
        return None


cases = [load(s) for s in SCALARS] + [load("k: " + s) for s in SCALARS if ":" not in s[-1:]] + [load(d) for d in DOCS]
dumps = [{"in": typed(v), "block": dump(v, default_flow_style=False), "indent4": dump(v, default_flow_style=False, indent=4), "flow": dump(v, default_flow_style=True, indent=0)} for v in DUMPS]
json.dump({"load": cases, "dump": dumps}, sys.stdout, indent=0, ensure_ascii=True)
sys.stdout.write("\n")
