"""Compiles pillars with Salt's own Pillar class, to compare with.

Reads a JSON list of cases on stdin and writes a list of results. Maps are
written as lists of pairs, so that their order can be compared too.
"""

import copy
import json
import logging
import sys

logging.disable(logging.CRITICAL)

import salt.config
import salt.pillar
import salt.version


def plain(value):
    if isinstance(value, dict):
        return {"m": [[plain(k), plain(v)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return {"b": value.hex()}
    return value


out = []
for case in json.load(sys.stdin):
    opts = salt.config.apply_master_config(case["opts"])
    opts["__role"] = "master"
    opts["file_client"] = "local"
    opts["__fs_update"] = True
    grains = dict(case["grains"], id=case["id"])
    try:
        pillar = salt.pillar.Pillar(
            opts,
            grains,
            case["id"],
            case.get("saltenv"),
            pillar_override=case.get("override"),
            pillarenv=case.get("pillarenv"),
            extra_minion_data=case.get("extra"),
        )
        out.append({"pillar": plain(pillar.compile_pillar())})
    except Exception as exc:  # pylint: disable=broad-except
        out.append({"error": f"{type(exc).__name__}: {exc}"})
json.dump({"version": salt.version.__saltstack_version__.major, "results": out}, sys.stdout)
