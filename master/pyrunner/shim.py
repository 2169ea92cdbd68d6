# Calls one runner or wheel function of Salt's library. The request comes on standard
# input, the answers go to what was standard output: a 32 bit length and a
# MessagePack map each. The first answer lists the functions that exist, the
# second is the result. What the function itself prints goes to standard error.
import os
import struct
import sys
from collections.abc import MutableMapping

sys.path.extend(sys.argv[1:])
answers = os.dup(1)  # not inherited by programs
os.dup2(2, 1)
raw = sys.stdin.buffer.read()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

try:
    import salt.config
    import salt.payload
    import salt.runner
    import salt.utils.event
    import salt.utils.jid
    import salt.utils.msgpack
    import salt.utils.user
    import salt.utils.verify
    import salt.version
    import salt.wheel
except ModuleNotFoundError as exc:
    if exc.name in ("salt", "msgpack"):
        sys.exit(3)
    raise


def answer(packed):
    data = struct.pack(">I", len(packed)) + packed
    while data:
        data = data[os.write(answers, data) :]


# Code of Salt's that orders by events what only the master's tools may order: it keeps
# and stops batches, and tells of changed keys. It chooses their tags itself.
TOOLS = ("salt.cli.batch", "salt.key", "salt.loaded.int.runners.batch")


def of_runner(fire):
    """
    Has other events say that a runner made them, for somebody who may call functions and
    no more. The master takes the mark off and no orders from them.
    """

    def fire_event(self, data, tag, *args, **kwargs):
        if sys._getframe(1).f_globals.get("__name__") in TOOLS or not isinstance(data, MutableMapping):
            return fire(self, data, tag, *args, **kwargs)
        data["__saltern_runner"] = True
        try:
            return fire(self, data, tag, *args, **kwargs)
        finally:
            del data["__saltern_runner"]

    return fire_event


def main():
    salt.utils.event.SaltEvent.fire_event = of_runner(salt.utils.event.SaltEvent.fire_event)
    request = salt.utils.msgpack.unpackb(raw, raw=False, strict_map_key=False)
    fun, args, kwargs = request["fun"], request["args"], request["kwargs"]
    opts = salt.config.client_config(request["config"])
    if not salt.utils.verify.check_user(opts["user"]):
        return {"error": f"this process cannot become the user {opts['user']}"}
    opts.update(request["options"])
    if request["git_pillars"]:
        git_pillars(opts, request["git_pillars"])
    jid = salt.utils.jid.gen_jid(opts)
    opts["fun"], opts["arg"] = fun, list(args)
    wheel = request["wheel"]
    client = salt.wheel.WheelClient(opts) if wheel else salt.runner.Runner(opts)
    names = [n for n in client.functions.keys() if "." in n]
    answer(
        salt.payload.dumps(
            {
                "functions": names,
                "dirs": list(getattr(client.functions, "module_dirs", [])),
                "salt": salt.version.__version__,
            },
            use_bin_type=True,
        )
    )
    if fun not in names:
        return {"unknown": True}
    if not wheel and fun in ("state.orchestrate", "state.orch", "state.sls"):
        kwargs["orchestration_jid"] = jid
    low = {
        "arg": args,
        "kwarg": kwargs,
        "__jid__": jid,
        "__tag__": salt.utils.event.tagify(jid, prefix=client.tag_prefix),
        "__user__": salt.utils.user.get_specific_user(),
    }
    data = client.low(fun, low, print_event=False, full_return=True)
    return {"return": data.get("return"), "success": bool(data.get("success"))}


try:
    reply = main()
    packed = salt.payload.dumps(reply, use_bin_type=True)
except BaseException as exc:  # pylint: disable=broad-except
    import traceback

    traceback.print_exc()
    packed = salt.payload.dumps({"error": f"{type(exc).__name__}: {str(exc)[:2000]}"}, use_bin_type=True)
if len(packed) > 31 << 20:
    packed = salt.payload.dumps({"error": f"the result of {len(packed)} bytes is too long"}, use_bin_type=True)
answer(packed)
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
