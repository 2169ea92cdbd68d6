# Loads what packages offer to Salt's loader, beside Salt, and says what does not load.
import json
import sys

sys.path.append(sys.argv[1])
import importlib.metadata

import salt.config
import salt.loader
import salt.utils.entrypoints

faults = []
for dist in importlib.metadata.distributions(path=[sys.argv[1]]):
    for entry in dist.entry_points:
        if entry.group != "salt.loader":
            continue
        try:
            entry.load()
        except BaseException as exc:  # pylint: disable=broad-except
            faults.append(f"{dist.metadata['Name']}: {entry.name}: {type(exc).__name__}: {exc}"[:500])
json.dump(faults[:20], sys.__stdout__)
sys.__stdout__.flush()
