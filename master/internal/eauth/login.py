# Proves log-ins with Salt's own modules and the administrator's; it follows
# master/pyrunner/kept.py.
import functools

import salt.auth
import salt.config


@functools.cache
def load_modules(conf):
    opts = salt.config.master_config(conf)
    # The module pam starts a Python of its own, which must find Salt as well: one in an
    # environment (venv) would not, nor the system's.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    opts.setdefault("auth.pam.python", sys.executable)
    return salt.auth.LoadAuth(opts)


def prove(request):
    auth = load_modules(request["conf"])
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


serve(prove)
