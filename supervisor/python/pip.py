# pip that starts no program: so nothing is ever built, and no setup.py runs.
import importlib
import runpy
import sys

DENIED = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")


def deny(event, args):
    if event in DENIED:
        raise PermissionError("this package would have to be built, and nothing is built here: ask for a version that has a wheel")


def complete(module):
    """What is installed of Salt is taken for complete: the image's leaves out what only
    salt-cloud and others need, which pip would look for with each package that needs Salt."""
    try:
        of = importlib.import_module(module).Distribution
        needs = of.iter_dependencies
    except (ImportError, AttributeError):  # another pip
        return

    def iter_dependencies(self, *args, **kwargs):
        return iter(()) if self.canonical_name == "salt" else needs(self, *args, **kwargs)

    of.iter_dependencies = iter_dependencies


sys.addaudithook(deny)
for module in ("pip._internal.metadata.importlib", "pip._internal.metadata.pkg_resources"):
    complete(module)
runpy.run_module("pip", run_name="__main__", alter_sys=True)
