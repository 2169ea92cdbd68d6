# Leaves out of Salt's library what it does for processes that live long, or twice. Results are
# the same.
PLAIN = frozenset((str, int, float, bool, type(None)))

DISTRIBUTION_TAKES = 5.0  # seconds that the programs get that say which Linux this is

GRAINS_HOLD = 10.0  # seconds
GRAINS_RATIO = 20  # collecting grains takes at most a twentieth of the time


def lean():
    """Leaves out what Salt's library does for processes that live long, or twice."""
    lazy = salt.loader.lazy.LazyLoader
    listings = Listings()
    listed = getattr(lazy, "_refresh_file_mapping", None)

    def refresh(loader):
        # A loader lists its folders twice as it is made.
        made = vars(loader)
        if made.get("initial_load") and "file_mapping" in made:
            return
        # It looks this option up for each file, which costs more than the rest of the list.
        if "optimization_order" in loader.opts:
            loader.opts["optimization_order"] = list(loader.opts["optimization_order"])
        listings.fill(loader, listed)

    if listed:
        lazy._refresh_file_mapping = refresh
    salt.utils.immutabletypes.ImmutableDict.copy = lambda defaults: plain_copy(defaults._ImmutableDict__obj)
    try:  # from 3008 on
        from salt.utils.optsdict import OptsDict
    except ImportError:
        pass
    else:
        lean_options(OptsDict)
    silence(salt)
    laid_out.watch()
    keep_distribution()
    salt.loader.grains = Grains(salt.loader.grains)
    salt.client.mixins.SyncClientMixin.mminion = property(Keepers(listings).keeper)
    # Which packages bring modules of Salt the folders tell, which the parent watches.
    entry_points = salt.utils.entrypoints.iter_entry_points
    bringing = entry_points("salt.loader")
    salt.utils.entrypoints.iter_entry_points = lambda group, *args: (
        list(bringing) if group == "salt.loader" and not args else entry_points(group, *args)
    )


class LaidOut:
    """
    Has the master write the files of a job before Salt's library or anybody's function looks for
    them: the master keeps jobs and returns in segments of its own (salt/returners/local_cache.py).
    """

    wait = 40  # seconds

    def __init__(self):
        self.jobs = self.socket = None

    def follow(self, opts):
        self.jobs = os.path.join(opts["cachedir"], "jobs")
        self.socket = os.path.join(opts["sock_dir"], "control.ipc")

    def watch(self):
        folder_of = salt.utils.jid.jid_dir
        load_module = salt.loader.lazy.LazyLoader._load_module

        def jid_dir(jid, job_dir=None, *args, **kwargs):
            if job_dir is not None:
                self.ask(str(jid), job_dir)
            return folder_of(jid, job_dir, *args, **kwargs)

        def load(loader, name):
            loaded = load_module(loader, name)
            if name == "local_cache" and loader.tag == "returner":
                self.list(getattr(loader._dict.get("local_cache.get_jids"), "__globals__", {}))
            return loaded

        salt.utils.jid.jid_dir = jid_dir
        salt.loader.lazy.LazyLoader._load_module = load

    def list(self, module):
        """Has a module's list of all jobs show those as well that are no files."""
        walk = module.get("_walk_through")
        if walk is None or getattr(walk, "lays_out", False):
            return

        def walk_through(folder):
            self.ask("", folder)
            return walk(folder)

        walk_through.lays_out = True
        module["_walk_through"] = walk_through

    def ask(self, jid, folder):
        if not self.jobs or os.path.realpath(folder) != os.path.realpath(self.jobs):
            return
        body = json.dumps({"jid": jid}).encode()
        head = f"POST /v1/jobs/files HTTP/1.1\r\nHost: master\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as master:
                master.settimeout(self.wait)
                master.connect(self.socket)
                master.sendall(head.encode() + body)
                answer = master.recv(64)
                while master.recv(4096):
                    pass
        except OSError as exc:
            answer = str(exc).encode()
        if not answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 400")):
            what = f"the files of job {jid}" if jid else "the list of jobs"
            logging.getLogger(__name__).warning("%s may not be complete: %r", what, answer[:64])


laid_out = LaidOut()


def keep_distribution():
    """
    Finds out which Linux this is, by several programs. Salt's library does so once in the life of a
    process. The parent is out of date when the files change that say so.
    """
    for path in ("/etc/os-release", "/usr/lib/os-release", "/etc/lsb-release", "/etc/debian_version"):
        library.note(path)

    def late(*_):
        raise TimeoutError  # ends the program, too (subprocess.run)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, DISTRIBUTION_TAKES)
    try:
        salt.utils.platform.linux_distribution()
    except Exception:  # pylint: disable=broad-except
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def lean_options(kind):
    """Options of 3008 and later: the same values, found with less work (salt/utils/optsdict.py)."""
    import salt.utils.optsdict as optsdict

    missing = object()

    def find(opts, key):
        while opts is not None:
            value = opts._local.get(key, missing)
            if value is missing and opts._parent is None:
                value = opts._base.get(key, missing)
            if value is not missing:
                return value
            opts = opts._parent
        return missing

    def getitem(opts, key):
        value = opts._local.get(key, missing)
        own = value is not missing
        if not own:
            value = find(opts, key)
        if value is missing or value is optsdict._DELETED:
            raise KeyError(key)
        if own or type(value) in PLAIN:
            return value
        # A change of these is to be made in a copy.
        if isinstance(value, dict) and not isinstance(value, kind):
            with opts._ensure_lock():
                return opts._proxy_for(key, value, optsdict.DictProxy)
        if isinstance(value, list):
            with opts._ensure_lock():
                return opts._proxy_for(key, value, optsdict.ListProxy)
        return value

    kind.__getitem__ = getitem
    # Or "if opts" would count all of its keys.
    kind.__bool__ = lambda opts: any(key in opts for key in opts._get_all_keys())


def plain_copy(value):
    """What copy.deepcopy makes of options, several times as fast."""
    kind = type(value)
    if kind is dict:
        return {key: plain_copy(each) for key, each in value.items()}
    if kind is list:
        return [plain_copy(each) for each in value]
    return value if kind in PLAIN else copy.deepcopy(value)


class Listings:
    """
    What loaders have found in their folders. Each step of an orchestration makes a dozen
    loaders of the same folders, and listing these is a third of a step's time. A list counts
    as long as the folders, and those in them, are as they were.
    """

    options = ("cython_enable", "enable_zip_modules", "optimization_order")

    def __init__(self):
        self.known = {}  # what a list depends on: the folders with their states, and what was found

    def fill(self, loader, listed):
        """Sets what _refresh_file_mapping of Salt's loader sets (salt/loader/lazy.py)."""
        settings = [loader.module_dirs, loader.suffix_order, sorted(loader.disabled), loader.static_modules]
        of = repr(settings + [loader.opts.get(name) for name in self.options])
        folders, suffixes, order, found = self.known.get(of, ({}, None, None, None))
        if folders and all(signature(folder) == state for folder, state in folders.items()):
            loader.suffix_map = dict(suffixes)
            loader.suffix_order = list(order)
            loader.file_mapping = dict(found)
            return
        folders = self.folders(loader.module_dirs)
        listed(loader)
        if folders:
            result = (dict(loader.suffix_map), list(loader.suffix_order), dict(loader.file_mapping))
            self.known[of] = (folders, *result)

    def folders(self, paths):
        """The states of folders and of those in them; none if one was changed a moment ago."""
        states, now = {}, time.time()
        for path in paths:
            states[path] = signature(path)
            try:
                entries = os.scandir(path)
            except OSError:
                continue
            with entries:
                for entry in entries:
                    if entry.is_dir():
                        states[entry.path] = signature(entry.path)
        young = any(state and now - state[3] / 1e9 < SETTLED for state in states.values())
        return {} if young else states


class Grains:
    """
    The grains of this machine for the minions that Salt's library makes of a master: an
    orchestration makes one for each of its steps, and collecting grains is most of a
    step's time. Each gets a copy. What was collected some seconds ago is collected anew, and
    after a step that has changed modules or the file of grains. On a machine that is so busy
    that collecting takes seconds, it stays for longer: most of the time would go there.
    """

    def __init__(self, collect):
        self.collect = collect
        self.known = {}  # configuration file: until when it counts, of which files, and the grains

    def __call__(self, opts, *args, **kwargs):
        if args or kwargs:
            return self.collect(opts, *args, **kwargs)
        of = opts.get("conf_file")
        began, files = time.monotonic(), self.files(opts)
        known = self.known.get(of)
        if not known or began > known[0] or files != known[1]:
            grains = self.collect_once(opts)
            took = time.monotonic() - began
            known = self.known[of] = (began + max(GRAINS_HOLD, GRAINS_RATIO * took), files, grains)
        return copy.deepcopy(known[2])

    def collect_once(self, opts):
        """Collects grains. Several of them list the interfaces of the network, by two programs each."""
        listing, found = salt.utils.network.linux_interfaces, []

        def interfaces():
            if not found:
                found.append(listing())
            return copy.deepcopy(found[0])

        salt.utils.network.linux_interfaces = interfaces
        try:
            return self.collect(opts)
        finally:
            salt.utils.network.linux_interfaces = listing

    def files(self, opts):
        """The states of the files by which an administrator gives this machine grains."""
        folders = [os.path.join(opts.get("extension_modules") or "", "grains"), *(opts.get("grains_dirs") or ())]
        paths = [os.path.join(os.path.dirname(opts.get("conf_file") or ""), "grains")]
        for folder in folders:
            try:
                paths += sorted(entry.path for entry in os.scandir(folder) if entry.is_file())
            except OSError:
                pass
        states = []
        for path in paths:
            try:
                st = os.stat(path)
            except OSError:
                continue
            states.append((path, st.st_ino, st.st_size, st.st_mtime_ns))
        return states


class Keepers:
    """
    The minion objects by which runner and wheel clients keep their results. An orchestration makes a
    client for each of its steps. They share one as long as the returner that keeps jobs is Salt's
    own, and its options and the folders of returners are the same.
    """

    options = ("conf_file", "cachedir", "root_dir", "hash_type", "user", "id", "master_job_cache", "ext_job_cache")

    def __init__(self, listings):
        self.listings = listings
        self.known = {}  # the options: the states of the folders, and the minion object

    def keeper(self, client):
        """What Salt's property mminion returns (salt/client/mixins.py)."""
        if not hasattr(client, "_mminion"):
            client._mminion = self.shared(client.opts)
        return client._mminion

    def shared(self, opts):
        of = repr([opts.get(name) for name in self.options])
        folders, keeper = self.known.get(of, ({}, None))
        if folders and folders == self.listings.folders(keeper.returners.module_dirs):
            return keeper
        keeper = salt.minion.MasterMinion(opts, states=False, rend=False)
        returners = keeper.returners
        path = returners.file_mapping.get(opts.get("master_job_cache"), ("",))[0]
        if path.startswith(os.path.join(os.path.dirname(salt.minion.__file__), "returners", "local_cache.")):
            self.known[of] = (self.listings.folders(returners.module_dirs), keeper)
        return keeper
