# Proves one login with Salt's own modules; the request is JSON on standard
# input, the verdict JSON on standard output.
import json
import os
import sys

sys.path.extend(sys.argv[1:])
request = json.load(sys.stdin)
answer = os.dup(1)
os.dup2(2, 1)

import salt.auth
import salt.config

opts = salt.config.master_config(request["conf"])
# The module pam starts a Python of its own, which must find Salt as well: one in an
# environment (venv) would not, nor the system's.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
opts.setdefault("auth.pam.python", sys.executable)
auth = salt.auth.LoadAuth(opts)
load = {k: request[k] for k in ("eauth", "username", "password")}
ok = bool(auth.authenticate_eauth(dict(load)))
groups = auth.get_groups(dict(load)) if ok else []
os.write(answer, json.dumps({"ok": ok, "groups": [str(g) for g in groups or []]}).encode())
