# Reactions, by Salt's own reactor (salt/utils/reactor.py): it renders the files for an
# event, compiles them, and puts the arguments of each call together. What it would then
# call goes to the master as plain data.
EXCERPT = "\n---\n"  # salt/utils/stringutils.py get_context
REACTOR_MODULES = ("salt.client", "salt.minion", "salt.runner", "salt.utils.reactor", "salt.wheel")


class Reactions:
    """A session with Salt's reactor, set up as in the process of Salt's own master."""

    altered = False

    def __init__(self, lib, request):
        for name in REACTOR_MODULES:
            importlib.import_module(name)
        salt = lib.salt
        silence(salt)
        opts = lib.master_opts()
        opts.update(request["opts"])
        grains, load = request.get("grains"), salt.loader.grains
        if grains:
            salt.loader.grains = lambda *_, **__: grains
        try:
            self.reactor = salt.utils.reactor.Reactor(opts)
        finally:
            salt.loader.grains = load
        self.faults = Faults()
        log = salt.utils.reactor.log
        log.handlers, log.propagate = [self.faults], False
        log.setLevel(logging.WARNING)
        self.executor = executor(lib, opts)

    def grains(self, _):
        """The grains of the master, which is all that takes long to find out."""
        return {"value": self.reactor.minion.opts["grains"]}

    def react(self, request):
        self.faults.found, self.faults.low, self.executor.calls = [], None, []
        for low in self.reactor.reactions(request["tag"], request["data"], request["files"]):
            self.faults.low = low
            self.executor.run(low)
        return {"calls": self.executor.calls, "faults": self.faults.found}


class Faults(logging.Handler):
    """Collects what Salt's reactor has to say of the files of one event."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.found, self.low = [], None

    def emit(self, record):
        text = record.getMessage()
        if record.levelno < logging.ERROR and isinstance(record.args, tuple):
            # It ends with the argument that does not count, which may be a secret.
            text = record.msg % (record.args[:-1] + ("...",))
        if record.exc_info and record.exc_info[1] is not None:
            # Below the line is an excerpt of the file, which may have secrets.
            text = f"{text.rstrip(': ')}: {str(record.exc_info[1]).partition(EXCERPT)[0].strip()}"
        fault = {"text": text[:4096], "error": record.levelno >= logging.ERROR}
        if self.low:
            fault["file"], fault["line"] = self.place()
        self.found.append(fault)

    def place(self):
        """The file of a reaction, and the line where it begins; 0: a template wrote it."""
        path, begin = str(self.low.get("__sls__") or ""), str(self.low["__id__"])
        try:
            with open(path, encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    if line.rstrip() == begin + ":" or line.startswith(begin + ": "):
                        return path, number
        except (OSError, ValueError):
            pass
        return path, 0


def executor(lib, opts):
    """Salt's executor of reactions, with clients that note what they are to call."""
    salt = lib.salt

    class Executor(salt.utils.reactor.ReactWrap):
        def __init__(self):
            self.opts, self.calls, self.low = opts, [], None
            self.client_cache = {}
            self.publisher = Publisher()

        def populate_client_cache(self, low):
            kind = low["state"]
            if kind in ("runner", "wheel") and kind not in self.client_cache:
                self.client_cache[kind] = Signatures(self.reaction_class[kind](opts).functions)

        def run(self, low):
            self.low = low
            if low["state"] in self.reaction_class:
                super().run(low)
            else:  # Salt's own reactor ends here, and starts again
                salt.utils.reactor.log.error(
                    "Reactor '%s' asks for '%s.%s': write local, runner, wheel or caller", low["__id__"], low["state"], low["fun"]
                )

        def note(self, kind, fun, arg, kwarg, **other):
            call = {
                "id": self.low["__id__"],
                "file": self.low.get("__sls__"),
                "kind": kind,
                "fun": fun,
                "arg": list(arg),
                "kwarg": {**kwarg},
                **other,
            }
            lib.dump(call)  # or the other calls would fail with it
            self.calls.append(call)

        def runner(self, fun, **kwargs):
            self.master_call("runner", fun, kwargs)

        def wheel(self, fun, **kwargs):
            self.master_call("wheel", fun, kwargs)

        def master_call(self, kind, fun, low):
            unknown = self.client_cache[kind].unknown.pop(fun, False)
            self.note(kind, fun, low["arg"], low["kwarg"], unknown=unknown)

        def caller(self, fun, **kwargs):
            self.note("caller", fun, kwargs["arg"], kwargs["kwarg"])

        def local(self, fun, tgt, **kwargs):
            self.publisher.cmd_async(tgt, fun, **kwargs)

    class Publisher(salt.client.LocalClient):
        """Notes what Salt's client would publish."""

        def __init__(self):  # pylint: disable=super-init-not-called
            self.opts = opts

        def __del__(self):
            pass

        def pub(self, tgt, fun, arg=(), tgt_type="glob", ret="", jid="", timeout=5, listen=False, **kwargs):
            load = {"tgt": tgt, "tgt_type": tgt_type, "ret": ret, "jid": jid, "kwargs": kwargs}
            noted.note("local", fun, arg, {}, load=load)
            return {"jid": jid, "minions": []}

        def _check_pub_data(self, pub_data, listen=True):
            return pub_data

    noted = Executor()
    return noted


class Signatures:
    """
    The functions of a client, for the names of their arguments. One that Salt does not have
    may be one of the master's: it is given all arguments, by name.
    """

    def __init__(self, loader):
        self.loader, self.unknown = loader, {}
        self.functions = self  # where Salt's executor looks in a client

    def get(self, name):
        found = self.loader.get(name)
        if found is None:
            self.unknown[name] = True
            return lambda **_: None
        return found


