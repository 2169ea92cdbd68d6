# Proves log-ins with Salt's own modules and the administrator's. Requests come on standard
# input, answers go to what was standard output: a 32 bit length and a MessagePack map
# each. The first answer, an empty map, says that Salt is there. What a module itself
# prints goes to standard error.
import os
import struct
import sys

sys.path.extend(sys.argv[1:])

answers = os.dup(1)  # not inherited by programs
os.dup2(2, 1)
requests = os.fdopen(os.dup(0), "rb")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

try:
    import salt.auth
    import salt.config
    import salt.utils.msgpack
except ModuleNotFoundError as exc:
    if exc.name in ("salt", "msgpack"):
        sys.exit(3)
    raise


def answer(reply):
    packed = salt.utils.msgpack.packb(reply, use_bin_type=True)
    data = struct.pack(">I", len(packed)) + packed
    while data:
        data = data[os.write(answers, data) :]


def load_modules(conf):
    opts = salt.config.master_config(conf)
    # The module pam starts a Python of its own, which must find Salt as well: one in an
    # environment (venv) would not, nor the system's.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    opts.setdefault("auth.pam.python", sys.executable)
    return salt.auth.LoadAuth(opts)


def prove(auth, request):
    load = {k: request[k] for k in ("eauth", "username", "password")}
    # Not time_auth, which sleeps after a refusal: the master delays it.
    if request["what"] == "login" and not auth._LoadAuth__auth_call(dict(load)):
        return {"ok": False}
    try:
        acl = auth._LoadAuth__get_acl(dict(load))
    except Exception as exc:  # pylint: disable=broad-except
        print(f"acl of {load['eauth']}: {exc}", file=sys.stderr)
        acl = None
    reply = {"acl": list(acl)} if isinstance(acl, (list, tuple)) else {}
    if request["what"] == "login":
        reply.update(ok=True, groups=[str(g) for g in auth.get_groups(dict(load)) or []])
    return reply


answer({})
modules = None
while True:
    head = requests.read(4)
    if len(head) < 4:
        break
    asked = salt.utils.msgpack.unpackb(requests.read(struct.unpack(">I", head)[0]), raw=False, strict_map_key=False)
    try:
        if modules is None:
            modules = load_modules(asked["conf"])
        said = prove(modules, asked)
    except Exception as exc:  # pylint: disable=broad-except
        said = {"error": f"{type(exc).__name__}: {str(exc)[:500]}"}
    answer(said)
