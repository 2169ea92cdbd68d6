"""Writes salt.txt: the options of a master in a Salt release, from a Python that
has it and the page of its manual about them (doc/ref/configuration/master.rst in
the archive of the source):

python dump.py master.rst > salt.txt

A line is a name, the types of VALID_OPTS or -, whether the page has the option
(page or -), and, after =, the default of DEFAULT_MASTER_OPTS as JSON where it is a
simple value that is the same on all machines (for root).
"""
import json
import re
import sys

import salt.config
import salt.version


def names(t):
    if t is None:
        return ["null"]
    if isinstance(t, (tuple, list)):
        return [n for x in t for n in names(x)]
    return [{"NoneType": "null", "tuple": "list"}.get(t.__name__, t.__name__)]


with open(sys.argv[1], encoding="utf-8") as f:
    page = set(re.findall(r"^\.\. conf_master:: (\S+)", f.read(), re.M))
valid, presets = salt.config.VALID_OPTS, salt.config.DEFAULT_MASTER_OPTS
print(f"# Written by dump.py from Salt {salt.version.__version__}; names, types and defaults only.")
for name in sorted(page | set(valid) | set(presets)):
    types = ",".join(dict.fromkeys(names(valid[name]))) if name in valid else "-"
    line = f"{name} {types} {'page' if name in page else '-'}"
    v = presets.get(name, ...)
    if name != "ipc_write_buffer" and (v is None or isinstance(v, (bool, int, float, str))):
        line += f" = {json.dumps(v)}"
    print(line)
