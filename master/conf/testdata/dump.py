"""Writes the option tables of a Salt release, from the Python that has it:

python dump.py defaults > ../defaults.yaml
python dump.py types > ../types.txt
"""
import sys

import salt.config
import salt.utils.yaml


def plain(v):
    if hasattr(v, "items"):
        return {k: plain(x) for k, x in v.items()}
    if hasattr(v, "__iter__") and not isinstance(v, str):
        return [plain(x) for x in v]
    return v


def names(t):
    if t is None:
        return ["null"]
    if isinstance(t, (tuple, list)):
        return [n for x in t for n in names(x)]
    return [{"NoneType": "null", "tuple": "list"}.get(t.__name__, t.__name__)]


if sys.argv[1] == "defaults":
    sys.stdout.write(salt.utils.yaml.safe_dump(plain(salt.config.DEFAULT_MASTER_OPTS), default_flow_style=None, sort_keys=False, width=100))
else:
    for name, types in sorted(salt.config.VALID_OPTS.items()):
        print(name, *dict.fromkeys(names(types)))
