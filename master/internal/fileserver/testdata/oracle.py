"""Answers file requests with Salt's own file server, to compare with.

Reads {"opts", "calls": [[command, load], ...]} as JSON and writes the list of
results; bytes are written as text.
"""

import json
import logging
import sys

logging.disable(logging.CRITICAL)

import salt.config
import salt.fileserver


def plain(value):
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return value.decode()
    return value


given = json.load(sys.stdin)
opts = salt.config.apply_master_config(given["opts"])
opts["__role"] = "master"
server = salt.fileserver.Fileserver(opts)
out = []
for command, load in given["calls"]:
    method = {"_file_find": "_find_file"}.get(command, command.lstrip("_"))
    try:
        out.append({"value": plain(getattr(server, method)(load))})
    except Exception as exc:  # pylint: disable=broad-except
        out.append({"error": f"{type(exc).__name__}: {exc}"})
json.dump(out, sys.stdout)
