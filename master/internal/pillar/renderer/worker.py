"""Renders templates with the Salt library on behalf of a Go master.

The first process (the nursery) imports Salt once, without any minion's data,
and forks workers on request. A worker serves one session at a time: a session
is one minion's pillar, or the master's reactions (reactions.py). All loaders, options and file clients are made anew
for each session, as Salt's own Pillar class does, so nothing of one minion is
there when the next one comes; only what is the same for all of them (the
master's options, the index of module files) is kept.

Frames, the settings, the orders and the log are those of pyfork's prelude.py,
which comes before this.
"""

import contextlib
import copy
import importlib
import logging
import os
import pickle
import socket
import threading
import time
import traceback


@contextlib.contextmanager
def held_log():
    """Logs what is logged meanwhile at the end, and nothing of what fails."""
    handlers = [h for h in logging.getLogger().handlers if isinstance(h, JSONLines)]
    for handler in handlers:
        handler.held = []
    held = []
    try:
        yield
        held = [(h, record) for h in handlers for record in h.held]
    finally:
        for handler in handlers:
            handler.held = None
        for handler, record in held:
            handler.emit(record)


class Salt:
    """The Salt library and the master's options."""

    def __init__(self, settings):
        import salt.config
        import salt.fileclient
        import salt.loader
        import salt.loader.lazy
        import salt.payload
        import salt.pillar
        import salt.template
        import salt.utils.cache
        import salt.utils.dictupdate
        import salt.utils.msgpack
        import salt.utils.templates
        import salt.utils.url
        import salt.version

        self.salt = salt
        self.version = salt.version.__version__
        overrides = settings.get("overrides") or {}
        if settings.get("config_file"):
            opts = salt.config.master_config(settings["config_file"])
            opts.update(overrides)
        else:
            opts = salt.config.apply_master_config(overrides)
        opts["__role"] = "master"
        # Workers only read files; the file server's upkeep is not theirs.
        opts["__fs_update"] = True
        opts.pop("grains", None)
        opts.pop("logger", None)
        if not opts.get("gpg_keydir"):
            # Left open, Salt asks grains and pillar for it: a minion would name
            # the folder whose gpg.conf the master's gpg reads.
            folder = opts.get("config_dir") or os.path.dirname(opts["conf_file"])
            opts["gpg_keydir"] = os.path.join(folder, "gpgkeys")
        setup_logging(settings.get("log_level", logging.WARNING))
        self.opts = pickle.dumps(dict(opts), protocol=pickle.HIGHEST_PROTOCOL)
        self.recording = environment()
        self.code = JinjaCode()
        self.code.install()
        self.yaml_text = YAMLText()
        self.yaml_text.install()
        self.quick = QuickSalt()
        self.quick.install(self.version)
        self.index_module_files()
        self.quick_truth()
        self.keep_decrypted()
        if opts.get("reactor"):
            for name in REACTOR_MODULES:
                importlib.import_module(name)

    def master_opts(self):
        """A copy of the master's options that nobody else holds."""
        return pickle.loads(self.opts)

    def index_module_files(self):
        """
        Keeps the list of module files of each loader while the directories
        do not change: half of the time of making a loader goes there.
        """
        lazy = self.salt.loader.lazy.LazyLoader
        if not hasattr(lazy, "_refresh_file_mapping"):
            return
        listed = lazy._refresh_file_mapping
        known = {}

        def stamp(path):
            try:
                st = os.stat(path)
                return (path, st.st_ino, st.st_mtime_ns)
            except OSError:
                return (path, 0, 0)

        def refresh(loader):
            key = (loader.tag, tuple(loader.module_dirs), tuple(loader.static_modules))
            now = [stamp(p) for p in loader.module_dirs]
            entry = known.get(key)
            if entry and entry[0] == now:
                loader.suffix_map = dict(entry[1])
                loader.suffix_order = list(entry[2])
                loader.file_mapping = entry[3].copy()
                return
            listed(loader)
            newest = max([n[2] for n in now], default=0)
            if time.time_ns() - newest > 2 * 10**9:
                known[key] = (
                    now,
                    dict(loader.suffix_map),
                    list(loader.suffix_order),
                    loader.file_mapping.copy(),
                )

        lazy._refresh_file_mapping = refresh

        found = self.salt.loader._module_dirs
        dirs = {}

        def module_dirs(opts, *args, **kwargs):
            try:
                key = (
                    args,
                    tuple(sorted(kwargs.items())),
                    opts.get("extension_modules"),
                    tuple(opts.get("module_dirs") or ()),
                    opts.get("resource_type"),
                )
                hash(key)
            except TypeError:
                return found(opts, *args, **kwargs)
            entry = dirs.get(key)
            if entry is None or time.monotonic() - entry[0] > 30:
                entry = dirs[key] = (
                    time.monotonic(),
                    list(found(opts, *args, **kwargs)),
                )
            return list(entry[1])

        self.salt.loader._module_dirs = module_dirs

    def quick_truth(self):
        """Options are asked whether they are empty, by counting, many times."""
        try:
            from salt.utils.optsdict import OptsDict
        except ImportError:
            return
        if "__bool__" not in OptsDict.__dict__:
            OptsDict.__bool__ = lambda self: any(True for k in self._get_all_keys() if k in self)

    def keep_decrypted(self):
        """
        Gives gpg_cache one memory for all sessions of a worker: Salt's own
        would be gone with the loader, or in clear in a file.
        """
        factory = self.salt.utils.cache.CacheFactory
        make, kept = factory.factory, {}

        def of(cls, backend, ttl, *args, **kwargs):
            if os.path.basename(kwargs.get("minion_cache_path") or "") != "gpg_cache":
                return make(backend, ttl, *args, **kwargs)
            if ttl not in kept:
                kept[ttl] = Decrypted(ttl)
            return kept[ttl]

        factory.factory = classmethod(of)

    def load(self, raw):
        return self.salt.utils.msgpack.unpackb(raw, raw=False, strict_map_key=False, ext_hook=salt_extension)

    def dump(self, value):
        return self.salt.payload.dumps(value, use_bin_type=True)


class Decrypted:
    """
    Secrets by their ciphertext, for a time. Whoever has no ciphertext gets
    nothing out of it. What was put in first makes room.
    """

    MOST, MOST_BYTES = 10000, 16 << 20

    def __init__(self, ttl):
        self.ttl, self.size, self.known = ttl, 0, {}

    def __contains__(self, cipher):
        entry = self.known.get(cipher)
        if entry and time.monotonic() - entry[1] > self.ttl:
            self.drop(cipher)
            entry = None
        return entry is not None

    def __getitem__(self, cipher):
        return self.known[cipher][0]

    def __setitem__(self, cipher, secret):
        self.drop(cipher)
        self.known[cipher] = (secret, time.monotonic())
        self.size += len(cipher) + len(secret)
        while self.known and (len(self.known) > self.MOST or self.size > self.MOST_BYTES):
            self.drop(next(iter(self.known)))

    def drop(self, cipher):
        entry = self.known.pop(cipher, None)
        if entry:
            self.size -= len(cipher) + len(entry[0])


def accepted(function, **kwargs):
    """Calls a function with those of the arguments that it knows: the
    loaders of older releases take fewer."""
    import inspect

    known = inspect.signature(function).parameters
    return {k: v for k, v in kwargs.items() if k in known}


@contextlib.contextmanager
def slow(what, after=30):
    """Logs what still runs after so many seconds."""
    timer = threading.Timer(
        after, logging.getLogger("renderer").warning, (f"{what} has been running for {after} s",)
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class LateClient:
    """A file client that is made when it is first used."""

    def __init__(self, make):
        self.__dict__["_make"] = make
        self.__dict__["_client"] = None

    def __getattr__(self, name):
        if self._client is None:
            self.__dict__["_client"] = self._make()
        return getattr(self._client, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def read_whole(path):
    with open(path, "rb") as file:
        return file.read()


class Sealed:
    """Renderers of which gpg opens nothing: what is encrypted stays as it is."""

    def __init__(self, rend):
        self.rend = rend

    def __getitem__(self, name):
        return sealed if name == "gpg" else self.rend[name]

    def __contains__(self, name):
        return name in self.rend

    def __getattr__(self, name):
        return getattr(self.rend, name)


def sealed(data, *_, **__):
    return data


class Session:
    """What salt.pillar.Pillar holds for one minion."""

    def __init__(self, lib, request):
        salt = lib.salt
        self.lib = lib
        self.master = request.get("kind") == "master"
        self.minion_id = request.get("id")
        self.pillar = request.get("pillar") or {}
        opts = lib.master_opts()
        self.ext_id = opts.get("id")
        opts["file_client"] = "local"
        opts["grains"] = request.get("grains") or {}
        opts["saltenv"] = request.get("saltenv")
        opts["pillarenv"] = request.get("pillarenv")
        if not self.master:
            opts["id"] = self.minion_id
            opts["minion_id"] = self.minion_id
        for key, value in (request.get("opts") or {}).items():
            opts[key] = value
        top = opts.get("state_top", "top.sls")
        if not top.startswith("salt://"):
            opts["state_top"] = salt.utils.url.create(top.lstrip("/"))
        self.opts = opts
        self.client = salt.fileclient.get_file_client(opts, True)
        self.files = LateClient(lambda: salt.fileclient.get_file_client(opts, False))
        utils = salt.loader.utils(
            opts, **accepted(salt.loader.utils, file_client=self.client)
        )
        with_pillar = accepted(salt.loader.minion_mods, pillar=self.pillar)
        if not with_pillar:
            opts["pillar"] = self.pillar
        self.functions = salt.loader.minion_mods(
            opts,
            utils=utils,
            **accepted(salt.loader.minion_mods, file_client=self.files),
            **with_pillar,
        )
        self._rend = None
        self._salt_pillar = None
        self.watch, self.altered, self.last_seen = request.get("watch"), False, None

    @property
    def rend(self):
        if self._rend is None:
            render = self.lib.salt.loader.render
            self._rend = render(
                self.opts,
                self.functions,
                self.client,
                **accepted(render, file_client=self.client, pillar=self.pillar),
            )
        return self._rend

    def set_pillar(self, request):
        """The pillar as it is now, for templates that come later."""
        new = request.get("pillar") or {}
        self.pillar.clear()
        self.pillar.update(new)
        inner = vars(self.functions).get("_dunder_salt")  # getattr loads all modules before 3008
        for loader in (self.functions, inner):
            if hasattr(loader, "pack"):
                loader.pack["__pillar__"] = self.pillar
        if "pillar" in self.opts:
            self.opts["pillar"] = self.pillar
        self._rend = self.last_seen = None
        return {}

    def render(self, request):
        if request.get("confined"):
            return self.confined(request)
        if not request.get("record"):
            with self.watched():
                value = self.rendered(request)
            return {"text": value.text} if isinstance(value, Text) else {"value": value}
        try:
            return self.recorded(request)
        except Unshareable as exc:
            why = str(exc)
        except Exception:  # pylint: disable=broad-except
            why = "fails when it is recorded"
        with self.watched():
            return {"value": self.compiled(request), "unshareable": why}

    def recorded(self, request):
        """Renders a template and says what it read."""
        recorder, raw = self.recorder(request), read_whole(request["path"])
        with held_log():
            value = recorded(self.lib.recording, recorder, lambda: self.compiled(request))
            return {"value": value, **recorder.trace(raw)}

    def recorder(self, request):
        for name in ("jinja", "yaml"):
            if not owned(self.rend[name], "salt.loaded.int."):
                raise Unshareable("is rendered by another module than Salt's")
        recorder = Recorder(self.functions, self.lib.dump)
        recorder.opts = bare(self.rend["jinja"].__globals__["__opts__"])
        recorder.given = set(request.get("context") or {})
        refuse_reserved(recorder.given)
        return recorder

    def confined(self, request):
        """
        Renders a template as recorded does, and refuses what cannot be recorded: of
        that nothing has run. A refusal and a fault follow from what was read so far.
        """
        raw, recorder = read_whole(request["path"]), Recorder(self.functions, self.lib.dump)
        try:
            recorder = self.recorder(request)
            with held_log():
                value = recorded(self.lib.recording, recorder, lambda: self.compiled(request))
                return {"value": value, **recorder.trace(raw)}
        except Unshareable as exc:
            return {"value": None, "unshareable": str(exc), **recorder.so_far(raw)}
        except MemoryError:
            raise
        except Exception as exc:  # pylint: disable=broad-except
            failure = {"error": str(exc)[:65536], "kind": type(exc).__name__}
            return {"value": None, "failure": failure, **recorder.so_far(raw)}

    @contextlib.contextmanager
    def watched(self):
        """Notes whether what templates see was altered. Later ones of the session see it so."""
        if not self.watch or self.altered:
            yield
            return
        before = self.last_seen or self.visible()
        try:
            yield
        finally:
            self.last_seen = self.visible()
            self.altered = not self.last_seen or self.last_seen != before

    def visible(self):
        try:
            return pickle.dumps((dict(self.opts), seen(self.rend, self.functions)))
        except Exception:  # pylint: disable=broad-except
            return None

    def rendered(self, request):
        """What compiled gives, or a Text where the master asks for one and may have it."""
        text = request.get("text_of_yaml") and not self.opts.get("use_yamlloader_old")
        fresh = request.get("fresh")
        with self.lib.code.unused(fresh), self.lib.quick.unused(fresh), self.lib.yaml_text.asking(text):
            return self.compiled(request)

    def load_yaml(self, request):
        """What Salt's yaml renderer makes of a text that rendered has given."""
        return {"value": self.rend["yaml"](request["text"], request["saltenv"], request["sls"])}

    def compiled(self, request):
        compile_template = self.lib.salt.template.compile_template
        kwargs = dict(request.get("context") or {})
        if request.get("pillar_rend"):
            kwargs["_pillar_rend"] = True
        path, text = request.get("path"), ""
        if path is None:
            path, text = ":string:", request["text"]
        value = compile_template(
            path,
            Sealed(self.rend) if request.get("sealed") else self.rend,
            self.opts["renderer"],
            self.opts["renderer_blacklist"],
            self.opts["renderer_whitelist"],
            saltenv=request.get("saltenv") or "base",
            sls=request.get("sls") or "",
            input_data=text,
            **kwargs,
        )
        if hasattr(value, "read"):
            value = value.read()
        return value

    def salt_pillar(self, request):
        """A Pillar object of Salt that was not initialised but filled in."""
        if self._salt_pillar is not None:
            return self._salt_pillar
        salt = self.lib.salt
        p = object.__new__(salt.pillar.Pillar)
        p._closing = True
        p.minion_id = self.minion_id
        p.ext = None
        p.opts = self.opts
        p.saltenv = self.opts.get("saltenv")
        p.client, p.fileclient = self.client, self.files
        p.functions, p.rend = self.functions, self.rend
        p.matchers = {}
        p.pillar_data = self.pillar
        p.merge_strategy = self.opts.get("pillar_source_merging_strategy") or "smart"
        p.ignored_pillars = {}
        p.pillar_override = request.get("override") or {}
        p.extra_minion_data = request.get("extra") or {}
        ext_opts = copy.deepcopy(self.opts)
        ext_opts["id"] = self.ext_id
        # git_pillar would give its own options back, with all they hold; the
        # master adds them itself.
        ext_opts["pillar_opts"] = False
        p.ext_pillars = salt.loader.pillars(
            ext_opts,
            self.functions,
            **accepted(salt.loader.pillars, pillar=self.pillar),
        )
        self.one_by_one(p)
        self._salt_pillar = p
        return p

    def one_by_one(self, p):
        """
        Fails an ext_pillar whose result cannot be sent, before it is merged
        with those of the others, and names the one that takes its time.
        """
        of = p._external_pillar_data

        def data(pillar, val, key):
            with slow(f"ext_pillar {key!r}"):
                ext = of(pillar, val, key)
            self.lib.dump(ext)
            return ext

        p._external_pillar_data = data

    @contextlib.contextmanager
    def said(self, p, request):
        """
        Gives Salt's modules the output of a command that the master has run, where
        they would run it.
        """
        if request.get("output") is None:
            yield
            return
        (name,) = request["entries"][0]
        module = p.ext_pillars[name].__globals__
        to_unicode = self.lib.salt.utils.stringutils.to_unicode

        def run(*args, **kwargs):
            # As salt/modules/cmdmod.py _run decodes it.
            try:
                out = to_unicode(request["output"])
            except UnicodeDecodeError:
                out = to_unicode(request["output"], errors="replace")
            return out.rstrip()

        salt_functions = module["__salt__"]
        module["__salt__"] = {"cmd.run": run, "cmd.run_stdout": run}
        try:
            yield
        finally:
            module["__salt__"] = salt_functions

    def ext_pillar(self, request):
        p = self.salt_pillar(request)
        errors = []
        self.set_pillar(request)
        p.opts = dict(self.opts, ext_pillar=request["entries"])
        with self.watched(), self.said(p, request):
            pillar, errors = p.ext_pillar(copy.deepcopy(self.pillar), errors)
        return {"value": pillar, "errors": errors}

    def whole(self, request):
        opts = self.lib.master_opts()
        opts["file_client"] = "local"
        opts["pillar_opts"] = False  # the master adds them, without secrets
        if any(isinstance(e, dict) and "git" in e for e in opts.get("ext_pillar") or []):
            git_pillars(opts, request["git_pillars"])
        pillar = self.lib.salt.pillar.Pillar(
            opts,
            self.opts["grains"],
            self.minion_id,
            self.opts["saltenv"],
            pillar_override=request.get("override"),
            pillarenv=self.opts["pillarenv"],
            extra_minion_data=request.get("extra"),
        )
        try:
            return {"value": pillar.compile_pillar()}
        finally:
            pillar.destroy()

    def decrypt(self, request):
        p = self.salt_pillar(request)
        pillar = request.get("pillar") or {}
        errors = p.decrypt_pillar(pillar) or []
        return {"value": pillar, "errors": errors}

    def tops(self, request):
        salt = self.lib.salt
        opts = request.get("minion_opts") or {}
        grains = opts.get("grains") or {}
        out, errors = {}, []
        loaded = salt.loader.tops(self.opts)
        for name in loaded:
            if name not in self.opts.get("master_tops", {}):
                continue
            try:
                out = salt.utils.dictupdate.merge(
                    out, loaded[name](opts=opts, grains=grains), merge_lists=True
                )
            except Exception as exc:  # pylint: disable=broad-except
                errors.append(f"Top function {name} failed with error {exc}")
        return {"value": out, "errors": errors}


METHODS = {
    "react": Reactions.react,
    "grains": Reactions.grains,
    "render": Session.render,
    "load_yaml": Session.load_yaml,
    "pillar": Session.set_pillar,
    "ext_pillar": Session.ext_pillar,
    "decrypt": Session.decrypt,
    "whole": Session.whole,
    "tops": Session.tops,
}


def show_plain_pillar():
    """Templates see values, not what hides them from logs."""
    try:
        from salt.utils.secret import mask_pillar

        mask_pillar.set(False)
    except ImportError:
        pass


def handle(lib, session, request):
    op = request["op"]
    if op == "begin":
        kind = Reactions if request["kind"] == "reactor" else Session
        return kind(lib, request), {}
    if op == "end":
        return None, {}
    if session is None:
        raise ValueError("no session")
    return session, METHODS[op](session, request)


def serve(lib, sock, settings):
    limit = settings["max_frame"]
    session = None
    me = os.getpid()
    while True:
        raw = read_frame(sock.recv, limit)
        if raw is None:
            return
        try:
            session, reply = handle(lib, session, lib.load(raw))
            reply["ok"] = True
            reply["altered"] = session is not None and session.altered
            out = lib.dump(reply)
        except MemoryError:
            session = None
            out = lib.dump({"ok": False, "error": "the memory limit of a renderer is reached"})
            if os.getpid() == me:
                send_frame(sock, out)
            os._exit(3)
        except BaseException as exc:  # pylint: disable=broad-except
            if isinstance(exc, KeyboardInterrupt):
                raise
            trace = "".join(traceback.format_exception(type(exc), exc, exc.__traceback__))
            out = lib.dump(
                {
                    "ok": False,
                    "error": str(exc)[:65536],
                    "kind": type(exc).__name__,
                    "trace": trace[-16384:],
                    "altered": session is not None and session.altered,
                }
            )
            exc = trace = None
        if len(out) > limit:
            out = lib.dump({"ok": False, "error": f"the result of {len(out)} bytes is too long"})
        if os.getpid() != me:  # a module has forked, and both have come back
            os._exit(0)
        send_frame(sock, out)


def start_worker(lib, fd, settings, control, wakeups, parent):
    die_with_parent(parent)
    wakeups.forget()
    control.close()
    limit = settings.get("memory_limit")
    if limit:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    import random

    random.seed()
    show_plain_pillar()
    if settings.get("confined"):
        confine()
    serve(lib, socket.socket(fileno=fd), settings)


def nursery(lib, settings, control):
    """Forks workers and kills them when told to."""
    import selectors

    wakeups = Wakeups()
    select = selectors.DefaultSelector()
    select.register(control, selectors.EVENT_READ)
    select.register(wakeups, selectors.EVENT_READ)
    workers = {}
    me = os.getpid()
    adopt()
    while True:
        for key, _ in select.select():
            if key.fileobj is wakeups:
                wakeups.clear()
                continue
            raw, fds, _, _ = socket.recv_fds(control, 65536, 4)
            if not raw:
                signal_all(workers.values(), signal.SIGKILL)
                signal_all(children() - set(workers.values()), signal.SIGTERM)
                if os.getpgrp() == me:
                    os.killpg(me, signal.SIGKILL)  # and what the workers' functions run
                os._exit(0)
            order = lib.load(raw)
            if order["op"] == "fork" and fds:
                pid = os.fork()
                if pid == 0:
                    work_and_exit(lambda: start_worker(lib, fds[0], settings, control, wakeups, me), "renderer")
                workers[order["worker"]] = pid
            elif order["op"] == "kill" and order["worker"] in workers:
                os.kill(workers[order["worker"]], signal.SIGKILL)
            for fd in fds:
                os.close(fd)
        # A worker stays in the table until it was waited for, so that a
        # number is never killed after it went to another process.
        while workers:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                workers.clear()
                break
            if pid == 0:
                break
            for number, known in list(workers.items()):
                if known == pid:
                    del workers[number]


def rehearse(lib):
    """One session of an imaginary minion, so that workers start with their
    imports done. It holds no data of anybody."""
    show_plain_pillar()
    session = Session(lib, {"id": "rehearsal", "grains": {"id": "rehearsal"}})
    text = (
        "{% set x = salt['grains.get']('os', 'none') %}{% for i in range(2) %}\n"
        "k{{ i }}: {{ x|tojson }}\n{% endfor %}\n"
        "p: {{ salt['pillar.get']('a:b', 1) }}\nc: {{ salt['config.get']('nosuch', 2) }}\n"
    )
    session.render({"text": text, "pillar_rend": True, "sls": "rehearsal"})


def main():
    control = socket.socket(fileno=CONTROL)
    try:
        settings = receive_settings()
        os.umask(0o077)
        if settings.get("layer"):
            sys.path.append(settings["layer"])
        setup_logging(settings.get("log_level", logging.WARNING))
        lib = Salt(settings)
        try:
            rehearse(lib)
        except Exception:  # pylint: disable=broad-except
            logging.getLogger("renderer").exception("the rehearsal failed")
        freeze_loaded()
    except BaseException as exc:  # pylint: disable=broad-except
        tell(control, op="failed", error=f"{type(exc).__name__}: {exc}")
        os._exit(2)
    os.dup2(2, 1)
    tell(control, op="ready", salt=lib.version)
    nursery(lib, settings, control)


main()
