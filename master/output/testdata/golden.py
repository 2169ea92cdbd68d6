"""
Write golden.json: what Salt's own outputters print for many values.

    <python with salt> golden.py > golden.json

and golden-3007.json, for the outputters that Salt 3008 does not have any more:

    <python with salt 3007> golden.py 3007 > golden-3007.json

Values are stored as MessagePack in hexadecimal.
"""
import copy
import json
import sys

import msgpack
import salt.config
import salt.output

BASE = {k: v for k, v in salt.config.DEFAULT_MASTER_OPTS.items()}
BASE.update(extension_modules="", color=False)

long = "word " * 40
vals = {
    "none": None, "true": True, "false": False, "zero": 0, "neg": -17, "big": 2**63 + 5,
    "float": 3.14, "float_int": 2.0, "float_small": 1e-7, "float_large": 1e16, "float_15": 123456789012345.0, "float_neg0": -0.0,
    "empty": "", "text": "hello", "lines": "one\ntwo\n\nfour\n", "crlf": "a\r\nb\rc", "seps": "a\x0bb\x0cc\x1cd\u2028e\x85f",
    "unicode": "grüße 世界 🎉", "quote": "it's", "dquote": 'say "x"', "both": "it's \"x\"", "tab": "a\tb", "backslash": "a\\b",
    "nul": "a\x00b\x07", "esc": "\x1b[31mred\x1b[0m", "spaces": "  lead and trail  ", "long": long, "longword": "x" * 200,
    "bytes": b"\xff\xfe\x00abc", "bytes_utf8": b"abc", "bytes_long": bytes(range(256)),
    "list_empty": [], "dict_empty": {}, "list": [1, "two", None, True, 3.5], "list_nested": [[1, 2], [3, [4, 5]], []],
    "list_dicts": [{"a": 1, "b": 2}, {"c": [1, 2]}], "list_multiline": ["a\nb", "c"], "list_empty_text": ["", "a"],
    "minion_true": {"m1": True}, "minion_text": {"m1": "hello\nworld"}, "minion_two": {"zeta": 1, "alpha": 2},
    "minion_none": {"m1": None}, "minion_empty_text": {"m1": ""}, "minion_empty_list": {"m1": []}, "minion_empty_dict": {"m1": {}},
    "minion_list": {"m1": ["a", "b"]}, "minion_nested": {"m1": {"foo": {"list": ["Hello", "World"], "bar": "baz", "dictionary": {"abc": 123, "def": 456}}}},
    "int_keys": {"m1": {3: "c", 1: "a", 10: "j"}}, "mixed_keys": {"m1": {3: "c", "1": "a", None: "n", True: "t"}},
    "float_keys": {"m1": {1.5: "a", 1: "b"}}, "bool_keys": {True: 1, False: 0}, "none_key": {None: 1},
    "minion_unicode": {"m1": {"schlüssel": "wert", "名前": "値"}}, "minion_long": {"m1": long.strip()}, "minion_deep": {"m1": {"a": {"b": {"c": {"d": {"e": ["f", {"g": "h"}]}}}}}},
    "grains": {"m1": {"os": "Debian", "ipv4": ["127.0.0.1", "10.0.0.2"], "dns": {"nameservers": ["1.1.1.1"], "search": []}, "mem_total": 4096, "selinux": {"enabled": False, "enforced": "Disabled"}, "uid": 0, "shell": "/bin/sh"}},
    "cmd_run_all": {"m1": {"pid": 123, "retcode": 0, "stdout": "out\nput", "stderr": ""}},
    "numbers": {"m1": [0, -1, 1.0, 1e100, 0.1, 1e-5, 0.0001, 123456789.123]},
    "texts_yaml": {"m1": ["yes", "no", "null", "~", "1", "1.5", "0x1f", "2026-01-02", "a: b", "- a", "#c", "a #c", "'q'", '"d"', "", " ", "x ", "!t", "&a", "*a", "%d", "@a", "`a", "{a}", "[a]", "a,b", "?", ":", "-", "=", "<<", "true", "1:30", "0644", "1e3", ".5", "1_000", "on", "tab\there", "multi\nline", "multi\nline\n", "\nlead", "trail \nx", "é", "🎉", "a\x07b", "\ufeff", "long " * 30]},
    "dict_long_key": {"m1": {"k" * 130: "v", "a b": "v", "": "e", "multi\nline": 1}},
    "no_return": {"m1": "Minion did not return. [No response]\nThe minions may not have all finished"},
    "no_return_plain": {"m2": "Minion did not return"}, "list_in_list_dict": {"m1": [[{"a": 1}, {"b": 2}], "x"]},
    "pprint_wrap": {"m1": {"aaaa": "lorem ipsum dolor " * 12, "bbbb": list(range(60)), "cccc": {"k%d" % i: "v" * i for i in range(12)}}},
    "pprint_top_text": "lorem ipsum dolor sit amet " * 8, "pprint_top_lines": ("x" * 50 + "\n") * 4, "pprint_bytes": {"m1": bytes(range(200))},
    "dict_text_multiline": {"m1": {"a": "x\ny", "b": ["p\nq", {"r": "s\nt"}]}},
}

keysets = {
    "keys_all": {"minions_pre": ["b", "a"], "minions": ["Zed", "alpha"], "minions_rejected": [], "minions_denied": ["evil"], "local": ["master.pem", "master.pub"]},
    "keys_finger": {"minions": {"m1": "aa:bb", "m0": "cc:dd"}, "minions_denied": {"d": ["11:22", "33:44"]}, "local": {"master.pub": "ee:ff"}},
    "keys_print": {"minions": {"m1": "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----"}},
    "keys_none": {"minions": []}, "keys_empty": {}, "keys_esc": {"minions": ["a\x1b[2Jb"]}, "keys_other": {"return": "aa:bb"}, "keys_text": "some text",
}


def st(run, **kw):
    d = {"name": "/tmp/x", "changes": {}, "result": True, "comment": "fine", "__sls__": "a", "__run_num__": run,
         "start_time": "10:11:12.%06d" % run, "duration": 1.5 * (run + 1), "__id__": "id%d" % run}
    d.update(kw)
    for k in [k for k, v in d.items() if v == "-drop-"]:
        del d[k]
    return d


tag = "{}_|-{}_|-{}_|-{}".format
hs = {
    "ok": {tag("file", "id0", "/tmp/x", "managed"): st(0)},
    "same_name": {tag("pkg", "vim", "vim", "installed"): st(0, name="vim")},
    "changed": {tag("file", "id0", "/tmp/x", "managed"): st(0, changes={"diff": "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n", "mode": "0644"}, comment="File /tmp/x updated")},
    "failed": {tag("cmd", "id0", "false", "run"): st(0, result=False, comment='Command "false" run', changes={"pid": 1, "retcode": 1, "stderr": "", "stdout": ""})},
    "test_none": {tag("file", "id0", "/tmp/x", "managed"): st(0, result=None, comment="The file would be changed", changes={"newfile": "/tmp/x"})},
    "mixed": {tag("file", "id2", "/tmp/z", "managed"): st(2, result=False, comment="no\nsuch\nfile"), tag("file", "id0", "/tmp/x", "managed"): st(0), tag("file", "id1", "/tmp/y", "managed"): st(1, changes={"a": "b"}), tag("file", "id3", "/tmp/q", "absent"): st(3, result=None)},
    "warnings": {tag("file", "id0", "/tmp/x", "managed"): st(0, warnings=["'foo' is an invalid argument for 'file.managed'. If you were trying to pass additional data to be used in a template context, please populate 'context' with 'key: value' pairs.", "second well-known warn--ing a-b x-y-z foo-bar"])},
    "warnings_long": {tag("file", "id0", "/tmp/x", "managed"): st(0, warnings=["w" * 100, "aaa-bbb-" * 20, "tab\there  two", ""])},
    "requisite": {tag("file", "id0", "/tmp/x", "managed"): st(0, result=False, comment="One or more requisite failed: a.id1", **{"start_time": "-drop-", "duration": "-drop-"})},
    "data_list": {tag("module", "id0", "x", "run"): st(0, data=["a", "b"])}, "data_dict": {tag("module", "id0", "x", "run"): st(0, data={"a": 1, "b": [1]})}, "data_text": {tag("module", "id0", "x", "run"): st(0, data="t")},
    "comment_list": {tag("file", "id0", "/tmp/x", "managed"): st(0, comment=["a", "b"])}, "comment_dict": {tag("file", "id0", "/tmp/x", "managed"): st(0, comment={"a": "b"})}, "comment_empty": {tag("file", "id0", "/tmp/x", "managed"): st(0, comment="")},
    "comment_ws": {tag("file", "id0", "/tmp/x", "managed"): st(0, comment="\n  a\n\n  b  \n")},
    "no_run_num": {tag("file", "id0", "/tmp/x", "managed"): st(0, **{"__run_num__": "-drop-"})},
    "changes_text": {tag("file", "id0", "/tmp/x", "managed"): st(0, changes="odd")}, "changes_list": {tag("file", "id0", "/tmp/x", "managed"): st(0, changes=["a"])},
    "changes_nested": {tag("pkg", "p", "p", "installed"): st(0, changes={"vim": {"old": "", "new": "9.0"}, "libs": {"a": {"new": "1", "old": "0"}}, "list": [1, {"x": "y"}]})},
    "no_changes": {tag("file", "id0", "/tmp/x", "managed"): st(0, **{"changes": "-drop-"})}, "no_comment": {tag("file", "id0", "/tmp/x", "managed"): st(0, **{"comment": "-drop-"})},
    "duration_text": {tag("file", "id0", "/tmp/x", "managed"): st(0, duration="12.5 ms")}, "duration_slow": {tag("file", "id0", "/tmp/x", "managed"): st(0, duration=61234.5)}, "duration_int": {tag("file", "id0", "/tmp/x", "managed"): st(0, duration=3)},
    "parallel": {tag("file", "id0", "/tmp/x", "managed"): st(0, __parallel__=True, duration=100.0), tag("file", "id1", "/tmp/x", "managed"): st(1, __parallel__=True, duration=50), tag("file", "id2", "/tmp/x", "managed"): st(2, duration=5)},
    "orch": {tag("salt", "id0", "x", "state"): st(0, changes={"out": "highstate", "ret": {"m1": {tag("file", "in", "/tmp/x", "managed"): st(0)}, "m2": {tag("file", "in", "/tmp/x", "managed"): st(0, result=False, changes={"a": 1})}}})},
    "orch_function": {tag("salt", "id0", "test.ping", "function"): st(0, changes={"out": "highstate", "ret": {"m1": True, "m2": "text\nmore"}})},
    "orch_run": {tag("salt", "id0", "state.orch", "runner"): st(0, name="state.orch", changes={"return": {"outputter": "highstate", "data": {"h_master": {tag("file", "in", "/tmp/x", "managed"): st(0, changes={"z": 1})}}, "retcode": 0}})},
    "names": {tag("cmd", "multi", n, "run"): st(i, __id__="multi", name=n, changes={"pid": i} if i != 2 else {}) for i, n in enumerate(["a", "b", "c"])},
    "unicode": {tag("file", "größe", "/tmp/世界", "managed"): st(0, comment="ünïcode 🎉")}, "many": {tag("test", "id%d" % i, "n%d" % i, "nop"): st(i, name="n%d" % i) for i in range(12)},
    "extra": {tag("file", "id0", "/tmp/x", "managed"): st(0), "note": "text", "empty": {}},
    "non_result": {"a": {"__run_num__": 0, "x": 1}}, "bool_result_int": {tag("file", "id0", "/tmp/x", "managed"): st(0, result=1)},
}
hs_top = {
    "errors": {"m1": ["Rendering SLS 'base:a' failed: mapping values\nare not allowed", "No matching sls found for 'x' in env 'base'"]},
    "text": {"m1": "Minion did not return"}, "true": {"m1": True}, "false": {"m1": False}, "int": {"m1": 5}, "none": {"m1": None}, "empty": {"m1": {}}, "float": {"m1": 1.5},
    "top_text": "some text", "top_none": None, "top_empty": {}, "top_list": ["a", "b"], "nondict": {"m1": {"a": "b"}}, "plain": {"m1": {"a": {"b": "c"}}},
    "two": {"m1": hs["ok"], "m2": hs["failed"]}, "envelope": {"return": {"m1": hs["ok"]}}, "data": {"data": {"m1": hs["ok"]}, "outputter": "highstate"},
    "lookup": {"m1": {"jid": "1", "fun": "state.sls", "return": {"data": {"h": hs["ok"]}}}}, "retcode": {"x_master": hs["ok"], "retcode": 1},
    "error_list_types": {"m1": [1, None, {"a": 1}]}, "err_esc": {"m\x1b1": ["a\x1b[31mb"]},
}
for n, v in hs.items():
    hs_top["st_" + n] = {"m1": v}
hs_opts = [
    {}, {"color": True}, {"state_output": "terse"}, {"state_output": "mixed"}, {"state_output": "changes"}, {"state_output": "full_id"}, {"state_output": "terse_id", "color": True},
    {"state_verbose": False}, {"state_output_diff": True}, {"state_output_profile": False}, {"state_output_pct": True}, {"state_tabular": True, "state_output": "terse"},
    {"state_output": "filter", "state_output_exclude": ["True"]}, {"state_output": "filter", "state_output_terse": "True,None"}, {"state_compress_ids": True},
    {"state_compress_ids": True, "state_output": "terse_id"}, {"state_output_profile": False, "state_output": "mixed", "color": True},
]

mac = [{"active": True, "mac_address": "40:A6:77:5A:50:01", "VLAN": 111, "moves": 0}, {"active": False, "mac_address": "64:16:8D", "VLAN": None, "moves": 12.5}]
tables = {
    "dicts": {"edge01": {"comment": "", "out": mac, "result": True}}, "two": {"m2": mac, "m1": mac[:1]},
    "lists": {"m1": [["a", "b"], ["long cell", "c"]]}, "texts": {"m1": ["one", "two words"]}, "top_list": mac, "top_texts": ["a", "bb", "ccc"],
    "ragged": {"m1": [["a", "b", "c"], ["d", "e"]]}, "uneven": {"m1": [{"a": 1, "b": 2}, {"a": 3}]}, "mixed": {"m1": ["a", 1]}, "mixed_bool": {"m1": [True, 1]},
    "numbers": {"m1": [1, 2]}, "cell_number": {"m1": [["a", 1]]}, "empty": {"m1": []}, "empty_rows": {"m1": [{}, {}]}, "empty_row": {"m1": [[], []]},
    "nested": {"m1": [{"a": {"b": [1, "x"]}, "c": [1]}]}, "wrap": {"m1": [{"t": long, "u": "x" * 60 + " y"}, {"t": "two\nlines", "u": "one"}]},
    "multi": {"m1": [["a\nb\nc", "d\ne"], ["f", "g"]]}, "bytes": {"m1": [{"a": b"text"}, {"a": b"more"}]}, "unicode": {"m1": [{"schlüssel": "größe 世界", "straße_x": "é"}]},
    "title": {"m1": [{"it's_a-b c1d": 1, "UPPER_lower": 2, "_x": 3}]}, "int_keys": {"m1": [{1: "a", 10: "b", 2: "c"}]}, "mixed_keys": {"m1": [{1: "a", "b": 2}]},
    "rows": {"m1": {"deep": {"table": [["a", "b"]], "head": ["H1", "H2"]}, "other": [["x"]]}}, "rows_dict_labels": {"m1": {"table": [["a", "b"]], "head": {"z": "Z", "y": "Y"}}},
    "scalar": {"m1": True}, "text": "text", "none": None, "grains": {"m1": {"os": "Debian", "roles": ["web", "db"], "mem": 1}},
}
table_opts = [
    {}, {"color": True}, {"out.table.justify": "left", "out.table.separate_rows": False, "out.table.delim": "  ", "out.table.prefix": "", "out.table.suffix": ""},
    {"out.table.justify": "RIGHT", "out.table.width": 20, "out.table.row_delimiter": "=-"}, {"out.table.has_header": False, "out.table.nested_indent": 3},
    {"out.table.rows_key": "table", "out.table.labels_key": "head", "out.table.title": "Title"}, {"out.table.rows_key": "table", "out.table.title": "T", "color": True},
]

out = []


def add(name, outputter, value, opts, **kw):
    o = copy.deepcopy({k: BASE[k] for k in BASE})
    o.update(opts)
    try:
        text = salt.output.out_format(copy.deepcopy(value), outputter, o, **kw)
    except Exception as exc:  # a traceback in Salt: nothing to compare with
        sys.stderr.write(f"{name} {outputter} {opts}: {exc!r}\n")
        return
    if text is None:
        text = ""
    if not isinstance(text, str):
        return
    case = {"name": name, "out": outputter, "value": msgpack.packb(value, use_bin_type=True).hex(), "want": text}
    if opts:
        case["opts"] = opts
    if kw:
        case["retcode"] = kw["_retcode"]
    out.append(case)


def write():
    print("[\n" + ",\n".join(json.dumps(c, ensure_ascii=True) for c in out) + "\n]")


if sys.argv[1:] == ["3007"]:
    names = ("minion_true", "minion_list", "minion_two", "list", "text", "none", "minion_text", "minion_none", "cmd_run_all", "minion_empty_list")
    for outputter in ("profile", "newline_values_only", "quiet"):
        for n in names:
            add(n, outputter, vals[n], {})
    for n, v in hs_top.items():
        for o in table_opts[:4]:
            add("hs_" + n, "profile", v, o)
    write()
    sys.exit()
for n, v in tables.items():
    for o in table_opts:
        add("table_" + n, "table", v, o)
for n, v in vals.items():
    add(n, "table", v, {})
    add(n, "nested", v, {})
    add(n, "nested", v, {"color": True})
    add(n, "json", v, {})
    add(n, "json", v, {"output_indent": -1})
    add(n, "yaml", v, {})
    add(n, "raw", v, {})
    add(n, "txt", v, {})
    add(n, "pprint", v, {})
for n in ("minion_nested", "list_dicts", "mixed_keys", "minion_empty_dict"):
    add(n, "nested", vals[n], {"color": True}, _retcode=1)
    add(n, "json", vals[n], {"output_indent": 0})
    add(n, "json", vals[n], {"output_indent": 2})
    add(n, "json", vals[n], {"output_indent": "pretty"})
    add(n, "yaml", vals[n], {"output_indent": 4})
    add(n, "yaml", vals[n], {"output_indent": -1})
    add(n, "pprint", vals[n], {"output_indent": 4})
    add(n, "nested", vals[n], {"nested_indent": 4})
    add(n, "text", vals[n], {})
    add(n, "nosuch", vals[n], {})
for n in ("no_return", "no_return_plain", "minion_two"):
    add(n, "no_return", vals[n], {})
    add(n, "no_return", vals[n], {"color": True})
for n, v in keysets.items():
    add(n, "key", v, {})
    add(n, "key", v, {"color": True})
for n, v in hs_top.items():
    for o in hs_opts:
        if o and not n.startswith("st_") and n not in ("two", "errors", "text"):
            continue
        add("hs_" + n, "highstate", v, o)
write()
