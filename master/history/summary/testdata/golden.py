"""Runs functions as a masterless minion, and writes what a minion returns for them.

For each case a line of JSON: name, function, the content of return.p (base64), and numbers that this
script counts in the return, without any code of the master.

  VENV/bin/python golden.py | gzip -n9 >golden-3008.jsonl.gz
"""

import base64
import json
import logging
import os
import shutil
import sys
import tempfile

import salt.cli.caller
import salt.config
import salt.payload
import salt.version

TREE = {
    "top.sls": "base:\n  '*':\n    - many\n",
    "many.sls": "{% for i in range(96) %}\nROOT/many/{{ i }}.conf:\n  file.managed:\n    - contents: value {{ i }}\n"
    "    - makedirs: True\n{% endfor %}\nnothing:\n  test.nop\nempty:\n  test.succeed_without_changes\n"
    "fast:\n  cmd.run:\n    - name: echo hello\nlast:\n  test.succeed_with_changes\n",
    "sshd.sls": "sshd_config:\n  file.managed:\n    - name: ROOT/sshd_config\n    - contents: |\n"
    "        Port 22\n        PermitRootLogin no\n",
    "bad.sls": "first:\n  test.fail_without_changes:\n    - comment: |\n        The disk is full\n        second line\n"
    "second:\n  test.nop:\n    - require:\n      - test: first\nthird:\n  test.fail_with_changes\n"
    "fourth:\n  test.nop:\n    - onfail:\n      - test: third\nfifth:\n  test.nop:\n    - onfail:\n      - test: fourth\n",
    "broken.sls": "a:\n  file.managed:\n    - name: {{ nothing.at.all }}\n",
    "yaml.sls": "a:\n  - b\n c: d\n",
    "conflict.sls": "a:\n  test.nop: []\ninclude:\n  - conflict2\n",
    "conflict2.sls": "a:\n  test.nop: []\n",
    "missing.sls": "a:\n  nosuchmodule.nosuchfunction: []\nb:\n  test.nop:\n    - require:\n      - test: nosuchid\n",
    "tree.sls": "ROOT/tree:\n  file.recurse:\n    - source: salt://files\n",
    "files/one": "1\n",
    "files/two": "2\n",
    "odd.sls": "odd|-name_|-x:\n  test.configurable_test_state:\n    - name: a_|-b_|-c\n    - changes: True\n"
    "    - result: True\n    - comment: odd\nlisted:\n  test.nop:\n    - names:\n      - n1\n      - n2\n"
    "parallel:\n  cmd.run:\n    - name: sleep 0.1\n    - parallel: True\n"
    "module:\n  module.run:\n    - test.ping: []\nskipped:\n  cmd.run:\n    - name: 'true'\n    - unless: 'true'\n",
    "toomany.sls": "{% for i in range(50) %}\nf{{ i }}:\n  test.fail_without_changes: []\nc{{ i }}:\n"
    "  test.succeed_with_changes: []\n{% endfor %}\n",
}

CASES = [
    ("first highstate", "state.apply", []),
    ("second highstate", "state.apply", []),
    ("highstate", "state.highstate", []),
    ("managed", "state.apply", ["sshd"]),
    ("by hand", None, None),
    ("would correct", "state.apply", ["sshd", "test=True"]),
    ("corrected", "state.apply", ["sshd"]),
    ("failed", "state.sls", ["bad"]),
    ("template", "state.apply", ["broken"]),
    ("yaml", "state.apply", ["yaml"]),
    ("conflict", "state.apply", ["conflict"]),
    ("missing function", "state.apply", ["missing"]),
    ("no such sls", "state.sls", ["nothing_here"]),
    ("recurse", "state.apply", ["tree"]),
    ("odd", "state.apply", ["odd"]),
    ("too many", "state.apply", ["toomany"]),
    ("single", "state.single", ["test.succeed_with_changes", "name=x"]),
    ("single failed", "state.single", ["test.fail_without_changes", "name=x"]),
    ("sls id", "state.sls_id", ["sshd_config", "sshd"]),
    ("show", "state.show_sls", ["sshd"]),
    ("ping", "test.ping", []),
    ("text", "cmd.run", ["echo one; echo two"]),
    ("command failed", "cmd.run", ["echo no; exit 3"]),
    ("no such function", "no.function", []),
    ("bad argument", "test.ping", ["a", "b"]),
    ("grains", "grains.items", []),
    ("false", "test.false", []),
]


def count(function, ret, code):
    """Numbers of a return, counted anew."""
    out = {"ok": 0, "changed": 0, "would_change": 0, "failed": 0, "millis": 0.0, "failed_ids": [], "changed_ids": []}
    states = 0
    if isinstance(ret, dict):
        for tag, one in ret.items():
            if tag.count("_|-") < 3 or not isinstance(one, dict) or "result" not in one:
                continue
            states += 1
            out["millis"] += one.get("duration", 0.0)
            if one["result"] is False:
                out["failed"] += 1
                out["failed_ids"].append(one.get("__id__") or tag.split("_|-")[1])
            elif one["result"] is None:
                out["would_change"] += 1
                out["changed_ids"].append(one["__id__"])
            elif one.get("changes"):
                out["changed"] += 1
                out["changed_ids"].append(one["__id__"])
            else:
                out["ok"] += 1
    runs = ("state.apply", "state.sls", "state.highstate", "state.single", "state.sls_id")
    if function in runs and not states and isinstance(ret, (list, str)):
        out["result"] = "error"
    elif out["failed"] or code:
        out["result"] = "failed"
    elif out["would_change"]:
        out["result"] = "would change"
    elif out["changed"]:
        out["result"] = "changed"
    else:
        out["result"] = "ok"
    return out


def main():
    logging.disable(logging.CRITICAL)
    root = tempfile.mkdtemp()
    tree = os.path.join(root, "states")
    for name, text in TREE.items():
        path = os.path.join(tree, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace("ROOT", root))
    opts = salt.config.minion_config(None)
    opts.update(
        root_dir=root,
        cachedir=root + "/cache",
        pki_dir=root + "/pki",
        file_client="local",
        local=True,
        master_type="disable",
        id="web1",
        file_roots={"base": [tree]},
        pillar_roots={"base": [root + "/pillar"]},
        extension_modules=root + "/ext",
        log_file=root + "/log",
        sock_dir=root + "/run",
        conf_file=root + "/minion",
        grains_cache=False,
        return_config={},
    )
    opts["fun"] = "test.ping"
    opts["arg"] = []
    caller = salt.cli.caller.Caller.factory(opts)
    for name, function, arguments in CASES:
        if function is None:
            with open(root + "/sshd_config", "w", encoding="utf-8") as f:
                f.write("Port 22\nPermitRootLogin yes\n")
            continue
        opts["fun"] = caller.opts["fun"] = function
        opts["arg"] = caller.opts["arg"] = arguments
        sys.stdout, kept = sys.stderr, sys.stdout
        try:
            ret = caller.call()
        except (Exception, SystemExit) as exc:  # pylint: disable=broad-except
            ret = {"return": "ERROR: " + str(exc), "retcode": 1}
        sys.stdout = kept
        code = ret.get("retcode", 0)
        data = {"return": ret.get("return"), "retcode": code, "success": code == 0}
        line = {"name": name, "function": function}
        if function == "grains.items":  # the real ones are long, and name the machine
            code = 0
            data = {"return": {"os": "Debian", "list": [1, {"a": None}]}, "retcode": code, "success": True}
        line["content"] = base64.b64encode(salt.payload.dumps(data)).decode()
        line["want"] = count(function, data["return"], code)
        print(json.dumps(line))
    shutil.rmtree(root)


main()
