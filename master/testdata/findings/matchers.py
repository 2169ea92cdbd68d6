"""Tells which minions take a published job for theirs.

Standard input: {"Minions": {id: grains}, "Jobs": [{"tgt": ..., "tgt_type": ...}]}.
Each job is judged as salt/minion.py _target_load does, by Salt's own matchers,
loaded once per minion. Standard output: for each job the list of ids.
"""

import json
import logging
import sys

import salt.config
import salt.loader

logging.disable(logging.CRITICAL)
q = json.load(sys.stdin)
minions = {}
for name, grains in q["Minions"].items():
    opts = dict(salt.config.DEFAULT_MINION_OPTS, id=name, grains=grains, pillar={}, nodegroups={}, cachedir="/nonexistent", extension_modules="")
    # Modules of one name are shared and would all have the options of the first.
    minions[name] = salt.loader.matchers(opts, loaded_base_name=f"minion{len(minions)}")


def takes(matchers, job):
    match = matchers.get("{}_match.match".format(job["tgt_type"]))
    if match is None:
        return False
    try:
        return bool(match(job["tgt"]))
    except Exception:  # the minion drops the job
        return False


json.dump([[n for n, m in minions.items() if takes(m, j)] for j in q["Jobs"]], sys.stdout)
