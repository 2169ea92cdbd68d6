"""Tells on which of its resources a minion of 3008 runs a published job.

Standard input: {"Resources": {type: [id]}, "Grains": {"type:id": grains},
"Jobs": [{"tgt": ..., "tgt_type": ..., "fun": ...}]}. Salt's own minion decides
(salt/minion.py _resolve_resource_targets). Standard output: for each job the
sorted list of ids.
"""

import json
import logging
import sys

from salt.minion import Minion

logging.disable(logging.CRITICAL)
q = json.load(sys.stdin)


class Asked:
    """What the functions of a minion that are asked here need of it."""

    opts = {"id": "web1", "resources": q["Resources"]}
    _resource_grains_cache = q["Grains"]
    _NO_RESOURCE_FUNS = Minion._NO_RESOURCE_FUNS
    _resource_term_matches = Minion._resource_term_matches
    _resource_matches_compound = Minion._resource_matches_compound
    _resolve_resource_targets = Minion._resolve_resource_targets


minion = Asked()
json.dump([sorted({r["id"] for r in minion._resolve_resource_targets(j)}) for j in q["Jobs"]], sys.stdout)
