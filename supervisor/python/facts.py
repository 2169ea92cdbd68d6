# Says what a Python is, and what packages would lack in it. They come on standard
# input as JSON: name, version, requires, python of each. Nothing of them runs.
import json
import os
import sys

packages = json.load(sys.stdin)
try:
    import importlib.metadata
    import platform
    import re
    import sysconfig

    import salt.version
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.tags import sys_tags
except ModuleNotFoundError as exc:
    json.dump({"missing": str(exc.name)}, sys.stdout)
    sys.exit(0)


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


base = {}
for dist in importlib.metadata.distributions():
    if dist.metadata and dist.metadata["Name"]:
        base.setdefault(canonical(dist.metadata["Name"]), dist.version)
tops = {name: True for name in sys.stdlib_module_names}
for folder in sys.path:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        continue
    for e in entries:
        name, _, ext = e.name.partition(".")
        if e.is_dir():
            if e.name.isidentifier():
                made = any(f.startswith("__init__.") for f in os.listdir(e.path))
                tops[e.name] = tops.get(e.name, False) or made
        elif ext in ("py", "pyc") or ext.endswith("so"):
            tops[name] = True

have = dict(base)
have.update({p["name"]: p["version"] for p in packages})
faults, lacks = [], []
here = platform.python_version()
for p in packages:
    try:
        if p["python"] and not SpecifierSet(p["python"]).contains(here, prereleases=True):
            faults.append(f"{p['name']} {p['version']} is for Python {p['python']}, and this one is {here}")
    except InvalidSpecifier:
        faults.append(f"{p['name']}: {p['python'][:100]!r} is no version of Python")
    for text in p["requires"]:
        try:
            need = Requirement(text)
            if need.marker and not need.marker.evaluate({"extra": ""}):
                continue
        except Exception as exc:  # pylint: disable=broad-except
            faults.append(f"{p['name']} needs something that cannot be read: {text[:100]!r}")
            continue
        got = have.get(canonical(need.name))
        if got is None:
            lacks.append(f"{p['name']} {p['version']} needs {need.name}{need.specifier}, which is not there")
            faults.append(lacks[-1])
        elif not need.specifier.contains(got, prereleases=True):
            faults.append(f"{p['name']} {p['version']} needs {need.name}{need.specifier}, and here is {got}")

json.dump(
    {
        "python": here,
        "tag": sys.implementation.cache_tag,
        "platform": sysconfig.get_platform(),
        "salt": str(salt.version.__version__),
        "packages": base,
        "tops": tops,
        "tags": [str(t) for t in sys_tags()],
        "faults": faults[:20],
        "lacks": lacks[:20],
    },
    sys.stdout,
)
