# Fetches the repositories of the git pillars with Salt's library, one after
# the other. The request comes on standard input; each answer is a line of JSON
# on what was standard output.
import contextlib
import fcntl
import json
import logging
import os
import sys
import time

answers = os.dup(1)  # not inherited by programs
os.dup2(2, 1)
request = json.loads(sys.stdin.buffer.read())
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

try:
    import salt.config
    import salt.pillar.git_pillar as git_pillar
    import salt.utils.cache
    import salt.utils.gitfs
    from salt.exceptions import FileserverConfigError
except ModuleNotFoundError as exc:
    if exc.name in ("salt", "msgpack"):
        sys.exit(3)
    raise

LOCKS = ("update", "checkout", "mountpoint")
BUSY = request["limit"] / 10  # seconds to wait for a lock that somebody holds


def answer(**what):
    os.write(answers, json.dumps(what).encode() + b"\n")


class Complaints(logging.Handler):
    """Keeps the last complaint: Salt logs faults instead of raising them."""

    last = ""

    def emit(self, record):
        self.last = why(record.exc_info[1]) if record.exc_info and record.exc_info[1] else record.getMessage()


def why(exc):
    said = getattr(exc, "stderr", None)  # of git, with GitPython's own words around
    if isinstance(said, bytes):
        said = said.decode(errors="replace")
    return (said or "").strip().removeprefix("stderr:").strip(" '\n") or f"{type(exc).__name__}: {exc}"


def began(pid):
    """When a process began, or None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            ticks = int(f.read().rsplit(b")", 1)[1].split()[19])
        with open("/proc/stat", "rb") as f:
            boot = next(int(line.split()[1]) for line in f if line.startswith(b"btime"))
    except (OSError, ValueError, StopIteration, IndexError):
        return None
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def stale(path, machine):
    """Whether a lock of Salt's, "PID\\nMACHINE\\n", outlived its holder."""
    with open(path, encoding="utf-8", errors="replace") as f:
        made = os.fstat(f.fileno()).st_mtime
        pid, _, holder = f.read(4096).partition("\n")
    if pid.strip().isdigit() and holder.strip() in ("", machine):
        start = began(int(pid))
        return start is None or start > made + 5
    return time.time() - made > request["limit"]


def clear(repo):
    """Removes what processes that were killed have left behind."""
    folder = repo.get_salt_working_dir()
    for kind in LOCKS:
        path = os.path.join(folder, kind + ".lk")
        try:
            if stale(path, getattr(repo, "mach_id", "")):
                os.remove(path)
                answer(log=f"removed the lock {path}: the process that made it is gone")
        except FileNotFoundError:
            pass
    for at, _, files in os.walk(getattr(repo, "gitdir", None) or repo.get_cachedir()):
        for name in files:
            path = os.path.join(at, name)
            try:
                if name.endswith(".lock") and time.time() - os.stat(path).st_mtime > request["limit"]:
                    os.remove(path)
                    answer(log=f"removed git's lock {path}: it is older than a fetch may take")
            except FileNotFoundError:
                pass


def held(repo):
    return os.path.exists(os.path.join(repo.get_salt_working_dir(), "update.lk"))


def fetch(repo, complaints):
    complaints.last = ""
    try:
        clear(repo)
        until = time.time() + BUSY
        while held(repo) and time.time() < until:
            time.sleep(0.2)
        if repo.fetch() is not False:
            return {}
    except Exception as exc:  # pylint: disable=broad-except
        complaints.last = why(exc)
    return {"error": complaints.last[:2000] or "Salt does not say why"}


def no_requests(opts):
    """
    Salt asks whoever compiles next to fetch the branches that pillarenv
    chooses. 3008.3 does so before it has opened the repository, which fails.
    """
    for at, _, files in os.walk(os.path.join(opts["cachedir"], "git_pillar", "work")):
        if "fetch_request" in files:
            os.remove(os.path.join(at, "fetch_request"))


@contextlib.contextmanager
def turn(folder):
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def alone(init):
    """One process makes or opens a clone at a time, as in the renderers."""

    def init_remote(repo):
        with turn(repo.get_cachedir()):
            return init(repo)

    return init_remote


def remotes(opts, configured):
    try:
        return opened(opts, configured)
    except FileExistsError:  # a renderer has made a folder between look and make
        return opened(opts, configured)


def opened(opts, configured):
    pillar = salt.utils.gitfs.GitPillar(
        opts,
        configured,
        per_remote_overrides=git_pillar.PER_REMOTE_OVERRIDES,
        per_remote_only=git_pillar.PER_REMOTE_ONLY,
        global_only=git_pillar.GLOBAL_ONLY,
    )
    if pillar.provider == "gitcli":  # it has no work tree, and Salt finds no file
        raise ValueError(
            "with git alone (git_pillar_provider gitcli) Salt compiles nothing of a repository; "
            f"install GitPython for {sys.executable}"
        )
    return pillar.remotes


def clones(opts, configured):
    """
    The clones of one remote, and what to call them. A remote of the branch
    __env__ has one for each pillarenv that somebody has asked for.
    """
    first = remotes(opts, [configured])[0]
    yield first, first.id
    if not first.id.startswith("__env__"):
        return
    here = first.get_cache_basename()
    top = first.get_salt_working_dir()[: -len(here) - 1]
    for at, folders, _ in list(os.walk(top)):
        env = os.path.relpath(at, top)
        if folders or env in (here, "."):
            continue
        repo = remotes({**opts, "pillarenv": env}, [configured])[0]
        # One that has no such branch is fetched when it is asked for.
        if repo.get_salt_working_dir() == at and os.listdir(repo.get_cachedir()) != [".git"]:
            yield repo, f"{first.id} ({env})"


def main():
    complaints = Complaints(logging.WARNING)
    root = logging.getLogger()
    root.handlers[:] = [complaints]
    for provider in ("GitPython", "Pygit2", "GitCLI"):
        if hasattr(salt.utils.gitfs, provider):
            cls = getattr(salt.utils.gitfs, provider)
            cls.init_remote = alone(cls.init_remote)
    opts = salt.config.master_config(request["config"])
    # Salt removes what it finds in a cache without a version, were it only a moment old.
    os.makedirs(opts["cachedir"], exist_ok=True)
    with turn(opts["cachedir"]):
        salt.utils.cache.verify_cache_version(os.path.join(opts["cachedir"], "git_pillar"))
    no_requests(opts)
    done = set(request["skip"])
    for entry in opts.get("ext_pillar") or []:
        if not isinstance(entry, dict) or "git" not in entry:
            continue
        complaints.last = ""
        try:
            if len(remotes(opts, entry["git"])) < len(entry["git"]):
                answer(refused=complaints.last[:2000] or "Salt leaves a remote out")  # and goes on without it
        except Exception as exc:  # pylint: disable=broad-except
            said = complaints.last if isinstance(exc, FileserverConfigError) else ""
            answer(refused=(said or str(exc))[:2000])
            continue
        for configured in entry["git"]:
            try:
                for repo, name in clones(opts, configured):
                    key = repo.get_salt_working_dir()
                    if key not in done:
                        done.add(key)
                        answer(begin=key, remote=name)
                        answer(end=key, **fetch(repo, complaints))
            except IndexError:  # left out
                continue
    answer(done=True)


main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
