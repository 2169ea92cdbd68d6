"""
Write args.json: how Salt reads command line arguments.

    <python with salt> args.py > args.json
"""
import json
import sys

import msgpack
import salt.utils.args

words = """
a 1 -1 +1 007 0644 0o14 0x1f 0b101 1.5 1. .5 1e3 1.5e3 1e+3 1.0e+3 -1.5 inf .inf -.inf .nan nan NaN 1_000 1_0.5 _1 12_ 1:30 12:30:45 1:30.5 08 09
true True TRUE yes Yes on off No n y null Null ~ None none = == a=b a=1 a==b a= =b a=b=c a_b=1 a-b=2 a.b=[1] 1a=b _a=1 é=1 a=None a=null a=yes a={b:1} a={b: 1}
[1,2] [a,b,{c: d}] [] {} {a: 1} {a:1} {a: {b: [c]}} - -- --- ... ! | > # #a a#b 'a #b' [1]#x {a: 1}#x @a `a %a &a *a !a !!str ? : , ; \\ / * ? a*b salt://x http://x:80/y
2026-01-02 2026-01-02T03:04:05 20261121080455885058 2026112108045588505 202611210804558850580 9223372036854775807 9223372036854775808 18446744073709551616 123456789012345678901234567890
!!int !!binary "quoted" 'single' "un 'it''s' "a\\nb" G@os:Debian E@a.* a:b a:1 {% {{x}} <%x%> << [<<] {<<: {a: 1}} ü ünï=wert 世界 a=世界 x=[1,2 x={ x=" x=' x=# x=a#b x=! x=| x=> x=- x=---
""".split()
words += ["", " ", "  a  ", "a b", "a: b", "- a", "a: b\nc: d", "x=a: b", "x=- a", "x=a b", "a\tb", "x=a\tb", "x=a\nb", "a\nb=c", "x=1\n", " 1", "1 ", " yes ", "{a: 1, b: [c, d]}", "x={a: 1, b: [c, d]}", "[1, two, 3.0, null]", "foo # bar", "# foo", "1 # bar", "x=1 # bar", "[1] # c", "!!python/object:os.system x", "a" * 300, "x=" + "1" * 30, "{a: 1, a: 2}", "{1: a, null: b}", "'yes'", '"1"', "x='1'", "name=value with spaces", "x=\u2028", "x=0644", "mode=0755", "x=08", "| a", "> a", "!x", "&x a", "*x", "a, b", "a,b", "[a", "]", "}", "x=]", "true,false", "jid=20261121080455885058", "x=!!binary aGk=", "!!set {a, b}", "!!timestamp 2026-01-01", "x=%"]
out = []
for w in dict.fromkeys(words):
    r = salt.utils.args.parse_input([w])
    try:
        b = msgpack.packb(r, use_bin_type=True).hex()
    except OverflowError:
        b = None
    out.append({"arg": w, "want": b, "repr": repr(r)})
print("[\n" + ",\n".join(json.dumps(c) for c in out) + "\n]")
