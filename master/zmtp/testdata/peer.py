"""A libzmq peer for TestInteropPyzmq: argv are the request and publish addresses.

Prints a line per step; waits for a line on stdin where the test publishes.
"""
import sys
import time

import zmq


def say(text):
    print(text, flush=True)


def check(ok, what):
    if not ok:
        say("FAILED " + what)
        sys.exit(1)


ctx = zmq.Context()


def socket(kind, addr, identity=b"", **opts):
    s = ctx.socket(kind)
    s.setsockopt(zmq.LINGER, 0)
    s.setsockopt(zmq.RCVTIMEO, 10000)
    if identity:
        s.setsockopt(zmq.IDENTITY, identity)
    for name, value in opts.items():
        s.setsockopt(getattr(zmq, name), value)
    s.connect("tcp://" + addr)
    return s


request, publish = sys.argv[1:]
beat = dict(HEARTBEAT_IVL=150, HEARTBEAT_TIMEOUT=600)

req = socket(zmq.REQ, request, b"salt-req/minion/test/1/0")
for size in (0, 1, 255, 256, 49152):
    req.send(b"x" * size)
    check(req.recv() == b"x" * size, "req %d" % size)
say("req ok")

dealer = socket(zmq.DEALER, request, **beat)
for i in range(100):
    dealer.send_multipart([b"", b"%d" % i])
for i in range(100):
    check(dealer.recv_multipart() == [b"", b"%d" % i], "dealer %d" % i)
say("dealer ok")

start = time.time()
big = b"y" * (20 << 20)
req.send(big)
check(req.recv() == big, "big")
print("20 MiB echo: %.2f s" % (time.time() - start), file=sys.stderr)
say("big ok")

everything = socket(zmq.SUB, publish, b"minion", SUBSCRIBE=b"")
some = socket(zmq.SUB, publish, **beat)
for topic in (b"broadcast", b"topic1", b"topic1"):
    some.setsockopt(zmq.SUBSCRIBE, topic)
time.sleep(0.3)
say("subscribed")

sys.stdin.readline()
for want in ([b"broadcast", b"hello"], [b"topic1", b"two"]):
    check(some.recv_multipart() == want, "some")
for want in ([b"broadcast", b"hello"], [b"nobody", b"x"], [b"topic1", b"two"]):
    check(everything.recv_multipart() == want, "everything")
some.setsockopt(zmq.UNSUBSCRIBE, b"topic1")
some.setsockopt(zmq.UNSUBSCRIBE, b"topic1")
say("topics ok")

sys.stdin.readline()
check(some.recv_multipart() == [b"broadcast", b"end"], "cancel")
for want in ([b"topic1", b"not any more"], [b"broadcast", b"end"]):
    check(everything.recv_multipart() == want, "everything")
say("cancel ok")

time.sleep(2)
say("idle ok")

sys.stdin.readline()
check(some.recv_multipart() == [b"broadcast", b"still here"], "alive")
check(everything.recv_multipart() == [b"broadcast", b"still here"], "alive")
req.send(b"again")
check(req.recv() == b"again", "req again")
say("alive ok")
