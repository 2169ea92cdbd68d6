# Asks Salt's own LoadAuth about log-ins: the cases are JSON on standard input, a list of
# {"conf": file, "logins": [[user, password], ...]}; the answers one JSON list for each.
# Debian's python3-ldap is at the end of the path (argument 1).
import json
import logging
import sys

sys.path.append(sys.argv[1])
import ldap  # noqa: F401 (without it Salt refuses everybody)
import salt.auth
import salt.config

logging.disable(logging.CRITICAL)
answers = []
for case in json.load(sys.stdin):
    opts = salt.config.master_config(case["conf"])
    out = []
    with salt.auth.LoadAuth(opts) as auth:
        for user, password in case["logins"]:
            auth.max_fail = 0
            load = {"eauth": "ldap", "username": user, "password": password, "cmd": "publish"}
            ok = bool(auth.authenticate_eauth(dict(load)))
            groups = auth.get_groups(dict(load)) if ok else None
            granted = auth.get_auth_list(dict(load)) if ok else None
            if granted is not None:
                # ldap() targets come out as bytes, of which no minion is made.
                granted = [
                    {(k.decode() if isinstance(k, bytes) else k): v for k, v in g.items()} if isinstance(g, dict) else g
                    for g in granted
                ]
            out.append({"ok": ok, "groups": sorted(set(groups or [])), "granted": granted})
    answers.append(out)
json.dump(answers, sys.stdout)
