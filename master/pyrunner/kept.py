# What the programs have in common that are kept (kept.go): requests come on standard input,
# answers go to what was standard output, a 32 bit length and a MessagePack map each. The
# first answer, an empty map, says that Salt is there. What else is printed goes to
# standard error. A program follows, and ends with serve().
import os
import struct
import sys

sys.path.extend(sys.argv[1:])

answers = os.dup(1)  # not inherited by programs
os.dup2(2, 1)
requests = os.fdopen(os.dup(0), "rb")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

try:
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


def serve(reply_to):
    answer({})
    me = os.getpid()
    while True:
        head = requests.read(4)
        if len(head) < 4:
            break
        request = salt.utils.msgpack.unpackb(requests.read(struct.unpack(">I", head)[0]), raw=False, strict_map_key=False)
        try:
            reply = reply_to(request)
        except Exception as exc:  # pylint: disable=broad-except
            reply = {"error": f"{type(exc).__name__}: {str(exc)[:500]}"}
        if os.getpid() != me:  # the module has forked, and both have come back
            os._exit(0)
        answer(reply)


