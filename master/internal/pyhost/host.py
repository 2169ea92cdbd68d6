# A parent that forks a worker for each task (pyhost.Host). What follows in the program
# defines load(), which imports what workers need and returns the version of Salt's
# library, and work(request, begun), which does one task in a worker; for sessions, whose
# requests have the field stay, also stay(request, task). The parent holds imported modules
# only: no options, and nothing of an administrator's own modules, so that no task finds what
# an earlier one or an older file has left.
import importlib
import importlib.machinery
import resource
import selectors
import threading
import time
import traceback

SETTLED = 2.0  # seconds: so coarse may the times of files be
PATIENCE = 1.0  # seconds that children of a task get to end by themselves
SPARE = 32 << 20  # bytes above the limit, to say that the limit is reached
LOADED = "salt.loaded."  # what the names of modules begin with that Salt's loaders run
STUBBORN = 5.0  # seconds after which what cannot be killed is left alone
IMPORT_TAKES = 10.0  # seconds that the import of one module may take in a parent; below obeyTakes of timing.go


def signature(path):
    """Another one when the file, or the list of a folder, was changed."""
    try:
        st = os.stat(path)
    except (OSError, ValueError):
        return None
    return (st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)


def content(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


class Library:
    """
    The files of the modules that this process has imported. A worker knows by them
    whether its parent is out of date. For Python's own modules the interpreter stands.
    """

    def __init__(self):
        self.files = {}  # path: signature, and the content if the file was changed just before
        self.roots = ()  # the folders that Python imports from
        self.python = ()  # those of its own modules
        self.code = {}  # path of a module of Salt's loader: signature of the file, and its compiled code
        self.read = set()  # paths of such modules whose code was not known yet

    def note(self, path):
        """Remembers a file that is about to be read. The first time counts."""
        root = max((r for r in self.roots if path.startswith(r)), key=len, default=None)
        if path not in self.files and root not in self.python:
            found = signature(path)
            young = found and time.time() - found[3] / 1e9 < SETTLED
            self.files[path] = (found, content(path) if young else None)

    def note_rest(self):
        """Remembers what did not come by a loader that is watched."""
        for module in list(sys.modules.values()):
            spec = getattr(module, "__spec__", None)
            if spec is not None and spec.has_location and isinstance(spec.origin, str):
                self.note(spec.origin)

    def changed(self):
        return any(
            signature(path) != known or text is not None and content(path) != text
            for path, (known, text) in self.files.items()
        )

    def watch(self):
        """
        Notes what is imported from now on. A compiled file fits to a source of the same
        size and whole second, so that none is used, or made, for a source that was changed a
        moment ago, nor for one outside of the library.
        """
        self.roots = tuple(os.path.join(folder, "") for folder in sys.path if folder)
        own = os.path.dirname(os.__file__)
        self.python = (os.path.join(own, ""), os.path.join(own, "lib-dynload", ""))
        # What is added to a folder may be what a module did not find.
        for path in [os.path.realpath(sys.executable), *sys.path]:
            self.files[path] = (signature(path), None)
        stats = importlib.machinery.SourceFileLoader.path_stats

        def path_stats(loader, path):
            ours = path.startswith(self.roots)
            if ours:
                self.note(path)
            if not ours or self.files.get(path, (0, None))[1] is not None:
                raise OSError("compile it anew")
            return stats(loader, path)

        importlib.machinery.SourceFileLoader.path_stats = path_stats
        read = importlib.machinery.SourceFileLoader.get_code
        importlib.machinery.SourceFileLoader.get_code = lambda loader, name: self.code_of(loader, name, read)

    def code_of(self, loader, name, read):
        """
        The compiled code of a module. Salt's loaders run the code of the same files again and
        again: for each call, and for each step of an orchestration. Reading it is half of the work.
        """
        path = loader.path
        if not name.startswith(LOADED) or not path.startswith(self.roots):
            return read(loader, name)
        found = signature(path)
        known, code = self.code.get(path, (None, None))
        if known and found == known:
            return code
        if known:  # it was changed a moment ago: a compiled file may be another one's
            code = loader.source_to_code(loader.get_data(path), path)
        else:
            code = read(loader, name)
            self.read.add(path)
        if found and time.time() - found[3] / 1e9 >= SETTLED:
            self.code[path] = (found, code)
        return code

    def read_code(self, path):
        """Reads the code of a module, which is not run, for the workers that will run it."""
        name = LOADED + "code"
        try:
            importlib.machinery.SourceFileLoader(name, path).get_code(name)
        except Exception:  # pylint: disable=broad-except
            pass


library = Library()


def library_modules(before):
    """The modules of the library that were imported since, for warm()."""
    names = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name in before or name.startswith(LOADED) or spec is None or not isinstance(spec.origin, str):
            continue
        if spec.name == name and (not spec.has_location or spec.origin.startswith(library.roots)):
            names.append(name)
    return names


class Late(BaseException):
    """An import takes too long. Modules that catch Exception do not catch it."""


def late(*_):
    raise Late


def warm(name):
    """
    Imports the module, or reads the code of the file, for which workers had to do so by themselves.
    Reports whether that was over in time.
    """
    if name.startswith("/"):
        if name.startswith(library.roots):
            library.read_code(name)
        return True
    if name in sys.modules:
        return True
    in_time = True
    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, IMPORT_TAKES)
        importlib.import_module(name)
    except Late:
        in_time = False
    except BaseException:  # pylint: disable=broad-except
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    library.note_rest()
    return in_time


def settle():
    """Makes what there is part of all workers, which do not look at it again."""
    library.note_rest()
    library.read = set()
    # Salt's loaders have all of these look at their folders again after each module.
    sys.path_importer_cache.clear()
    freeze_loaded()


def limit(kind, most, spare=0):
    """Lowers a limit of this process and its children."""
    soft, hard = resource.getrlimit(kind)
    if hard == resource.RLIM_INFINITY or hard > most + spare:
        hard = most + spare
    if soft == resource.RLIM_INFINITY or soft > most:
        soft = min(most, hard)
    resource.setrlimit(kind, (soft, hard))


def relieve():
    """Gives a task that has failed the memory to say so."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def end_children():
    """Ends what the task has left running: it may ask no more."""
    deadline, number = time.monotonic() + PATIENCE, signal.SIGTERM
    pause = 0.001
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        late = time.monotonic() - deadline
        if late > STUBBORN:
            return
        if late > 0:
            number = signal.SIGKILL
        signal_all(children(), number)
        time.sleep(pause)
        pause = min(0.05, pause * 2)


def describe(exc):
    return f"{type(exc).__name__}: {str(exc)[:2000]}"


class Task:
    """One task, in its worker."""

    def __init__(self, sock, settings, parent, check):
        self.sock, self.settings, self.parent, self.check = sock, settings, parent, check

    def send(self, reply):
        """Answers with what it packs, or with why it cannot."""
        try:
            packed = pack(reply)
        except BaseException as exc:  # pylint: disable=broad-except
            packed = pack({"error": "the result cannot be sent: " + describe(exc)})
        most = self.settings["max_answer"]
        if len(packed) > most:
            packed = pack({"error": f"the result of {len(packed)} bytes is too long, {most} are allowed"})
        send_frame(self.sock, packed)

    def begun(self):
        """Is called when what the request wants was found."""
        die_with_parent(self.parent)  # another user's process forgets it
        self.send({"begun": True})

    def receive(self):
        """Waits for the next message of a session; None: there will be none."""
        raw = read_frame(self.sock.recv, self.settings["max_request"])
        return None if raw is None else unpack(raw)

    def run(self):
        if self.check and library.changed():
            self.send({"stale": True})
            return
        self.send({"pid": os.getpid()})
        raw = read_frame(self.sock.recv, self.settings["max_request"])
        if raw is None:
            return
        me = os.getpid()
        try:
            request = unpack(raw)
            reply = stay(request, self) if request.get("stay") else work(request, self.begun)
        except BaseException as exc:  # pylint: disable=broad-except
            relieve()
            logging.getLogger("host").warning("a task has failed", exc_info=True)
            reply = {"error": describe(exc)}
        if os.getpid() != me:  # the task has forked, and both have come back
            return
        flush()
        end_children()
        self.send(reply)


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass


def start_worker(fd, settings, control, wakeups, parent, check):
    die_with_parent(parent)
    wakeups.forget()
    control.close()
    os.setsid()
    os.set_inheritable(fd, False)
    adopt()
    limit(resource.RLIMIT_DATA, settings["memory_limit"], SPARE)
    limit(resource.RLIMIT_NOFILE, settings["max_files"])
    limit(resource.RLIMIT_CORE, 0)
    Task(socket.socket(fileno=fd), settings, parent, check).run()


class Parent:
    """Forks workers, kills them when told to, and says when they have ended."""

    def __init__(self, control, settings):
        self.control, self.settings = control, settings
        self.wakeups = Wakeups()
        self.live = {}  # pid: number of the worker
        self.over = []  # numbers and statuses of workers whose end is not told yet
        self.waits = 0.0  # since when, for what they have left
        self.cold = []  # modules to import, one at a time, while there are no orders
        self.me = os.getpid()
        adopt()

    def run(self):
        select = selectors.DefaultSelector()
        select.register(self.control, selectors.EVENT_READ)
        select.register(self.wakeups, selectors.EVENT_READ)
        while True:
            events = select.select(0 if self.cold else 0.02 if self.over else None)
            if self.cold and not events:
                self.warm()
            for key, _ in events:
                if key.fileobj is self.wakeups:
                    self.wakeups.clear()
                elif not self.obey():
                    self.end()
                    return
            self.reap()

    def obey(self):
        """Follows one order; reports whether there will be others."""
        raw, fds, _, _ = socket.recv_fds(self.control, 1 << 17, 4)
        if not raw:
            return False
        order = unpack(raw)
        number = order["worker"]
        if order["op"] == "fork" and fds:
            self.fork(number, fds[0], order["check"])
        elif order["op"] == "kill":
            for pid, known in self.live.items():
                if known == number:
                    self.kill(pid)
            tell(self.control, op="killing", worker=number)
        elif order["op"] == "terminate":
            signal_all([pid for pid, known in self.live.items() if known == number], signal.SIGTERM)
        elif order["op"] == "warm":
            self.cold += order["names"]
        for fd in fds:
            os.close(fd)
        return True

    def warm(self):
        """Imports a module: who waits for a fork waits for no more than one."""
        name = self.cold.pop(0)
        in_time = warm(name)
        if not in_time:
            tell(self.control, op="slow", error=name)
        if not in_time or self.count_threads():
            self.cold = []
        if not self.cold:
            settle()

    def fork(self, number, fd, check):
        try:
            pid = os.fork()
        except OSError as exc:
            tell(self.control, op="ended", worker=number, error=f"no process can be made: {exc.strerror}")
            return
        if pid:
            self.live[pid] = number
            tell(self.control, op="forked", worker=number)
            return
        work_and_exit(lambda: start_worker(fd, self.settings, self.control, self.wakeups, self.me, check), "host")

    def kill(self, pid):
        signal_all([pid], signal.SIGKILL)
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def reap(self):
        # A worker stays in the table until it was waited for, so that no other process is
        # killed that has its number by then.
        while self.live or self.over:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self.live:
                self.over.append((self.live.pop(pid), status))
                self.waits = time.monotonic()
        if not self.over:
            return
        # What has no worker any more is this process's child now.
        left = children() - set(self.live)
        if left and time.monotonic() - self.waits < STUBBORN:
            signal_all(left, signal.SIGKILL)
            return
        for number, status in self.over:
            tell(self.control, op="ended", worker=number, status=status)
        self.over = []

    def end(self):
        for pid in self.live:
            self.kill(pid)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    signal_all(children() - set(self.live), signal.SIGKILL)
                    time.sleep(0.005)
            except ChildProcessError:
                break

    def count_threads(self):
        """A fork would leave threads behind, and locks that they hold: says so if there are any."""
        names = [t.name for t in threading.enumerate()[1:]]
        found = bool(names) or len(os.listdir("/proc/self/task")) > 1
        if found:
            tell(self.control, op="threads", error=", ".join(names))
        return found


def host():
    control = socket.socket(fileno=CONTROL)
    try:
        settings = receive_settings()
        setup_logging(settings["log_level"])
        if settings["layer"]:
            sys.path.append(settings["layer"])
        library.watch()
        version = load()
        settle()
    except ModuleNotFoundError as exc:
        if exc.name in ("salt", "msgpack"):
            os._exit(3)
        tell(control, op="failed", error=describe(exc))
        os._exit(2)
    except BaseException as exc:  # pylint: disable=broad-except
        tell(control, op="failed", error=describe(exc))
        os._exit(2)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    tell(control, op="ready", salt=version)
    parent = Parent(control, settings)
    parent.count_threads()
    parent.run()
    os._exit(0)


