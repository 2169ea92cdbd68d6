"""Has Salt's own reactor react to events and prints what it calls, as JSON.

Arguments: the configuration of a master. On standard input is a list of cases: tag, data,
files. Only what leaves the process is caught: jobs, runners, wheel functions. Not the same
is how the pool of threads works, which is left out.
"""

import json
import logging
import sys

import salt.client
import salt.config
import salt.runner
import salt.utils.reactor
import salt.wheel

calls, errors = [], []


class Errors(logging.Handler):
    def emit(self, record):
        errors.append(record.getMessage())


def low(kind):
    def call(self, fun, low, **_):
        calls.append({"kind": kind, "fun": fun, "arg": list(low["arg"]), "kwarg": {**low["kwarg"]}})

    return call


def pub(self, tgt, fun, arg=(), tgt_type="glob", ret="", jid="", timeout=5, **kwargs):
    kwargs.pop("listen", None)
    calls.append(
        {"kind": "local", "fun": fun, "arg": list(arg), "tgt": tgt, "tgt_type": tgt_type, "ret": ret, "jid": jid, "kwargs": kwargs}
    )
    return {"jid": "1", "minions": ["m"]}


class Caller:
    def __init__(self, *_):
        pass

    def cmd(self, fun, *args, **kwargs):
        calls.append({"kind": "caller", "fun": fun, "arg": list(args), "kwarg": kwargs})


class Pool:
    def fire_async(self, function, args=()):
        try:
            function(*args)
        except Exception as exc:  # pylint: disable=broad-except
            errors.append(repr(exc))  # the result of the function
        return True


def main():
    opts = salt.config.master_config(sys.argv[1])
    opts["__role"] = "master"
    salt.runner.RunnerClient.low = low("runner")
    salt.wheel.WheelClient.low = low("wheel")
    salt.client.LocalClient.pub = pub
    salt.utils.reactor.ReactWrap.reaction_class = dict(salt.utils.reactor.ReactWrap.reaction_class, caller=Caller)
    reactor = salt.utils.reactor.Reactor(opts)
    reactor.wrap = salt.utils.reactor.ReactWrap(opts)
    reactor.wrap.pool = Pool()
    salt.utils.reactor.log.addHandler(Errors(logging.ERROR))
    out = []
    for case in json.load(sys.stdin):
        calls.clear()
        errors.clear()
        ended = ""
        try:
            reactor.call_reactions(reactor.reactions(case["tag"], case["data"], case["files"]))
        except Exception as exc:  # pylint: disable=broad-except
            ended = repr(exc)  # the process of the reactor
        text = json.dumps({"calls": calls, "errors": errors, "ended": ended}, default=str)
        out.append(json.loads(text))
    json.dump(out, sys.stdout)


main()
