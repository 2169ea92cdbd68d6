# pip that starts no program: so nothing is ever built, and no setup.py runs.
import runpy
import sys

DENIED = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")


def deny(event, args):
    if event in DENIED:
        raise PermissionError("this package would have to be built, and nothing is built here: ask for a version that has a wheel")


sys.addaudithook(deny)
runpy.run_module("pip", run_name="__main__", alter_sys=True)
