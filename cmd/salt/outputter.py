# Shows values by outputters of Salt's library and of the administrator. Requests
# come on standard input, answers go to what was standard output: a 32 bit length
# and a MessagePack map each. The first answer, an empty map, says that Salt is
# there. What an outputter itself prints goes to standard error.
import os
import struct
import sys

sys.path.extend(sys.argv[1:])

answers = os.dup(1)  # not inherited by programs
os.dup2(2, 1)
requests = os.fdopen(os.dup(0), "rb")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

try:
    import salt.config
    import salt.loader
    import salt.output
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


def show(request, opts):
    opts.update(request["opts"])
    for name in ("output", "progress", "static"):
        opts.pop(name, None)
    if request["out"] not in salt.loader.outputters(opts):
        return {"unknown": True}
    text = salt.output.try_printout(request["data"], request["out"], opts, _retcode=request["retcode"])
    return {"text": text if isinstance(text, str) else "" if text is None else str(text)}


answer({})
opts = None
while True:
    head = requests.read(4)
    if len(head) < 4:
        break
    request = salt.utils.msgpack.unpackb(requests.read(struct.unpack(">I", head)[0]), raw=False, strict_map_key=False)
    try:
        if opts is None:
            opts = dict(salt.config.client_config(request["config"]))
        reply = show(request, opts)
    except Exception as exc:  # pylint: disable=broad-except
        reply = {"error": f"{type(exc).__name__}: {str(exc)[:500]}"}
    answer(reply)
