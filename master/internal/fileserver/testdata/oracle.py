"""Answers file requests with Salt's own file server, to compare with.

Reads [{"opts", "calls": [[command, load], ...]}, ...] as JSON and writes a list
of results for each; bytes are written as text.
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


results = []
for case in json.load(sys.stdin):
    opts = salt.config.apply_master_config(case["opts"])
    opts["__role"] = "master"
    server = salt.fileserver.Fileserver(opts)
    if "gitfs" in opts["fileserver_backend"]:
        import salt.utils.gitfs

        salt.utils.gitfs.GitFS.instance_map.clear()
        server.update()
    out = []
    for command, load in case["calls"]:
        method = {"_file_find": "_find_file"}.get(command, command.lstrip("_"))
        try:
            out.append({"value": plain(getattr(server, method)(load))})
        except Exception as exc:  # pylint: disable=broad-except
            out.append({"error": f"{type(exc).__name__}: {exc}"})
    results.append(out)
json.dump(results, sys.stdout)
