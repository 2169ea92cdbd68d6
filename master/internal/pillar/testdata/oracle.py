"""Compiles pillars with Salt's own Pillar class, to compare with.

Reads a JSON list of cases on stdin and writes a list of results. Maps are
written as lists of pairs, so that their order can be compared too.
"""

import copy
import json
import logging
import sys

logging.disable(logging.CRITICAL)

import salt.cache
import salt.config
import salt.pillar
import salt.pillar.git_pillar
import salt.utils.gitfs
import salt.version


def plain(value):
    if isinstance(value, dict):
        return {"m": [[plain(k), plain(v)] for k, v in value.items()]}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return {"b": value.hex()}
    return value



def fetch(opts):
    """Fetches git pillars, as the runner git_pillar.update does."""
    conf = salt.pillar.git_pillar
    for entry in opts["ext_pillar"]:
        remotes = salt.utils.gitfs.GitPillar(
            opts,
            entry["git"],
            per_remote_overrides=conf.PER_REMOTE_OVERRIDES,
            per_remote_only=conf.PER_REMOTE_ONLY,
            global_only=conf.GLOBAL_ONLY,
        )
        remotes.fetch_remotes()


def remember(opts, minion_id, grains):
    """Has the master know a minion, by its key and in the caches of all releases."""
    cache = salt.cache.factory(opts)
    cache.store(f"minions/{minion_id}", "data", {"grains": grains, "pillar": {}})
    cache.store("grains", minion_id, grains)
    cache.store("pillar", minion_id, {})


out = []
for case in json.load(sys.stdin):
    opts = salt.config.apply_master_config(case["opts"])
    opts["__role"] = "master"
    opts["file_client"] = "local"
    opts["__fs_update"] = True
    if case.get("fetch"):
        fetch(dict(opts, pillarenv=case.get("pillarenv"), saltenv=case.get("saltenv")))
    grains = dict(case["grains"], id=case["id"])
    if case.get("known"):
        remember(opts, case["id"], grains)
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
