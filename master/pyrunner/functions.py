# Calls runner and wheel functions of Salt's library, in a worker of host.py. The options
# are read and the functions loaded anew for each call, as Salt's own master does, so that
# a file that was changed a moment ago counts.
import builtins
import copy
import json
import os
import signal
import socket
import time
from collections.abc import Mapping, MutableMapping

# Code of Salt's that orders by events what only the master's tools may order: it keeps
# and stops batches, and tells of changed keys. It chooses their tags itself.
TOOLS = ("salt.cli.batch", "salt.key", "salt.loaded.int.runners.batch")

held = []  # to the end of the process, which spares it the taking apart
secrets = None  # of the call, once it is known


def load():
    global salt
    import salt.client.mixins
    import salt.config
    import salt.exceptions
    import salt.loader
    import salt.loader.lazy
    import salt.minion
    import salt.payload
    import salt.runner
    import salt.utils.entrypoints
    import salt.utils.args
    import salt.utils.event
    import salt.utils.immutabletypes
    import salt.utils.jid
    import salt.utils.msgpack
    import salt.utils.network
    import salt.utils.platform
    import salt.utils.state
    import salt.utils.user
    import salt.utils.verify
    import salt.version
    import salt.wheel

    lean()
    salt.utils.event.SaltEvent.fire_event = of_runner(salt.utils.event.SaltEvent.fire_event)
    return salt.version.__version__


def of_runner(fire):
    """
    Has other events say that a runner made them, for somebody who may call functions and
    no more. The master takes the mark off and no orders from them. Secrets among the
    arguments of the call are not for all who read events.
    """

    def fire_event(self, data, tag, *args, **kwargs):
        if sys._getframe(1).f_globals.get("__name__") in TOOLS or not isinstance(data, MutableMapping):
            return fire(self, data, tag, *args, **kwargs)
        if secrets:
            data = secrets.hide(data)
        data["__saltern_runner"] = True
        try:
            return fire(self, data, tag, *args, **kwargs)
        finally:
            del data["__saltern_runner"]

    return fire_event


def unpack(raw):
    return salt.utils.msgpack.unpackb(
        raw, raw=False, strict_map_key=False, unicode_errors="surrogateescape", ext_hook=salt_extension
    )


def pack(value):
    try:
        packed = salt.payload.dumps(value, use_bin_type=True)
    except (UnicodeEncodeError, TypeError):
        packed = None
    if packed is None or odd_keys(packed):
        return salt.payload.dumps(sendable(value), use_bin_type=True)
    return packed


def odd_keys(packed):
    """Reports whether a key is a tuple or the like, which the master cannot have as a key. It costs less
    than to walk through the value."""
    try:
        salt.utils.msgpack.unpackb(packed, raw=True, strict_map_key=False, ext_hook=lambda code, data: None)
    except TypeError:  # a list is not hashable
        return True
    return False


def plain_key(key):
    return key is None or isinstance(key, (str, bytes, int)) or isinstance(key, float) and key == key


def sendable(value):
    """The same with bytes for texts that are none, such as odd names of files, and texts for odd keys."""
    if isinstance(value, str):
        for errors in ("strict", "surrogateescape", "replace"):
            try:
                raw = value.encode(errors=errors)
            except UnicodeEncodeError:
                continue
            return value if errors == "strict" else raw
    if isinstance(value, Mapping):
        return {sendable(k) if plain_key(k) else repr(k): sendable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [sendable(v) for v in value]
    return value


def client(request):
    """A runner or wheel client, with the options of now."""
    opts = salt.config.client_config(request["config"])
    if not salt.utils.verify.check_user(opts["user"]):
        raise RuntimeError(f"this process cannot become the user {opts['user']}")
    opts.update(request["options"])
    laid_out.follow(opts)
    if request["git_pillars"]:
        git_pillars(opts, request["git_pillars"])
    if "hidden" in request and request["fun"].startswith("state."):
        # Or the pillar of an orchestration would be kept, with what the caller adds to it.
        opts["minion_data_cache"] = opts["pillar_cache"] = False
    if request.get("id"):  # a minion's: salt/daemons/masterapi.py minion_runner
        opts.update(id=request["id"], fun=request["fun"], arg=list(request["args"]))
    return salt.wheel.WheelClient(opts) if request["wheel"] else salt.runner.RunnerClient(opts)


def work(request, begun):
    importlib.invalidate_caches()
    before = set(sys.modules)
    if request["op"] == "list":
        reply = listing(request)
        return {**reply, "warm": library_modules(before) + sorted(library.read)}
    if request["op"] == "return":
        begun()
        return give(request)
    reply = call(request, begun)
    # Of the call of anybody's function, only what is Salt's own: the parent imports it in advance.
    salts = [name for name in library_modules(before) if name.startswith("salt.")]
    return {**reply, "warm": salts + sorted(library.read)}


def give(request):
    """Hands a result to returners, as salt/utils/schedule.py handle_func does."""
    opts = salt.config.client_config(request["config"])
    laid_out.follow(opts)
    returners = salt.loader.returners(opts, {})
    failed = []
    for name in request["returners"]:
        function = f"{name}.returner"
        if function not in returners:
            failed.append(f"there is no returner {name}")
            continue
        try:
            returners[function](request["result"])
        except Exception as exc:  # pylint: disable=broad-except
            failed.append(f"{name}: {exc}")
    return {"failed": failed}


class Hung(Exception):
    """A module takes too long to load. Salt's loader logs it and goes on with the next module."""


def bound_loading(functions, seconds, wanted=None):
    """
    Bounds the time in which Salt's loader loads one module (salt/loader/lazy.py LazyLoader), but for the
    wanted one. It returns a list that gets the names of those that took longer.
    """
    load_module, late = functions._load_module, []

    def bounded(name):
        if name == wanted:
            return load_module(name)

        def hung(*_):
            late.append(name)
            raise Hung(f"module {name} takes longer than {seconds:g} seconds to load")

        signal.signal(signal.SIGALRM, hung)
        signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # again: a module may catch the first one
        try:
            return load_module(name)
        except Hung as err:  # it came outside of what the loader catches
            logging.getLogger(__name__).error("%s", err)
            return False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    functions._load_module = bounded
    return late


def listing(request):
    functions = client(request).functions
    late = bound_loading(functions, request["load_within"])
    names = [n for n in functions.keys() if "." in n]
    return {"functions": names, "dirs": list(getattr(functions, "module_dirs", [])), "incomplete": bool(late)}


def call(request, begun):
    global secrets
    fun, args, kwargs = request["fun"], request["args"], request["kwargs"]
    caller = client(request)
    held.append(caller)
    bound_loading(caller.functions, request["load_within"], fun.partition(".")[0])
    known = fun in caller.functions  # loads all modules if its own does not have it
    del caller.functions._load_module
    if not known:
        return {"unknown": True}
    function = caller.functions[fun]
    jid = request.get("jid") or salt.utils.jid.gen_jid(caller.opts)
    user = request.get("user") or salt.utils.user.get_specific_user()
    if not request["wheel"] and fun in ("state.orchestrate", "state.orch", "state.sls"):
        kwargs["orchestration_jid"] = jid
    if "hidden" in request:
        secrets = Secrets(request)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, JSONLines):
            handler.jid = jid
            if secrets:
                handler.setFormatter(Discreet())
    tag = salt.utils.event.tagify(jid, prefix=caller.tag_prefix)
    event = salt.utils.event.NamespacedEvent(caller.event, tag, print_func=None)
    # All modules of this process may ask for these. It runs this function only.
    for name, value in {"__jid__": jid, "__user__": user, "__tag__": tag, "__jid_event__": event}.items():
        setattr(builtins, name, value)
        function.__globals__[name] = value
    begun()
    started = time.time()
    try:
        return outcome(caller, fun, function, args, kwargs)
    finally:
        event.destroy()
        if "hidden" in request:
            forget_states(caller.opts["cachedir"], started)


class Secrets:
    """Those among the arguments of the call (package redact): what others see is without them."""

    deepest = 64

    def __init__(self, request):
        self.all, self.hidden, self.known = request["all"], request["hidden"], set(request["secrets"])
        self.parts = sorted(filter(lambda s: len(s) >= 5, self.known), key=len, reverse=True)

    def text(self, text):
        if not self.all or text in self.known:
            return self.hidden
        for secret in self.parts:
            text = text.replace(secret, self.hidden)
        return text

    def hide(self, value, depth=0):
        """A copy of the value. The names of its own fields stay."""
        if depth > self.deepest:
            return self.hidden
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.text(value.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        if isinstance(value, Mapping):
            return {k if depth == 0 else self.hide(k, depth + 1): self.hide(v, depth + 1) for k, v in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.hide(v, depth + 1) for v in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool) and str(value) in self.parts:
            return self.hidden
        return value


class Discreet(logging.Formatter):
    """Leaves the secrets out of what is logged."""

    def format(self, record):
        return secrets.text(super().format(record))


def forget_states(folder, started):
    """
    Removes what orchestrations leave of their states since then, and do not read again
    (salt/modules/state.py).
    """
    for name in ("sls.p", "highstate.cache.p"):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.path.getmtime(path) >= started - 1:
            os.remove(path)


def outcome(caller, fun, function, args, kwargs):
    """
    Calls the function and says what came of it, in the words of Salt's own master
    (salt/client/mixins.py low).
    """
    try:
        try:
            result = function(*args, **kwargs)
        except TypeError as exc:
            result = f"\nPassed invalid arguments: {exc}\n\nUsage:\n{function.__doc__}"
        success = caller.context.get("retcode", 0) == 0
        if isinstance(result, dict) and "data" in result:
            success = salt.utils.state.check_result(result["data"])
        return {"return": result, "success": bool(success)}
    except salt.exceptions.NotImplemented as exc:
        return {"return": str(exc), "success": False}
    except (Exception, SystemExit) as exc:  # pylint: disable=broad-except
        relieve()
        trace = "".join(traceback.format_exception(type(exc), exc, exc.__traceback__.tb_next))
        return {"return": f"Exception occurred in {caller.client} {fun}: {trace}", "success": False}


