# Answers as Vault does for one secret of a key-value store of version 2, on port 8200 of
# the address that is given.
import http.server
import json
import sys

SELF = {"id": "a-token", "accessor": "x", "ttl": 0, "explicit_max_ttl": 0, "expire_time": None, "creation_time": 1700000000, "creation_ttl": 0,
        "issue_time": "2024-01-01T00:00:00Z", "num_uses": 0, "orphan": True, "renewable": False, "policies": ["salt"], "type": "service"}
CREATED = {"client_token": "of-the-minion", "accessor": "y", "policies": ["salt"], "token_policies": ["salt"], "metadata": {}, "lease_duration": 3600,
           "renewable": True, "entity_id": "", "token_type": "service", "orphan": False, "num_uses": 0}
ANSWERS = {
    "/v1/auth/token/lookup-self": {"data": SELF},
    "/v1/auth/token/create": {"auth": CREATED},
    "/v1/sys/internal/ui/mounts/secret/salt": {"data": {"path": "secret/", "type": "kv", "uuid": "u", "options": {"version": "2"}}},
    "/v1/secret/data/salt": {"data": {"data": {"db_password": "correct horse"}, "metadata": {"version": 1}}},
}


class Vault(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        code, body = 200, ANSWERS.get(self.path)
        if self.headers.get("X-Vault-Token") not in ("a-token", "of-the-minion"):
            code, body = 403, {"errors": ["permission denied"]}
        elif body is None:
            code, body = 404, {"errors": []}
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = answer


http.server.ThreadingHTTPServer((sys.argv[1], 8200), Vault).serve_forever()
