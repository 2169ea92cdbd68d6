"""Starts minions by fork, with what Salt imports for them already loaded.

Standard input has one request a line, as JSON: id, args, env, out (the file for what the
minion prints), net (the network namespace to enter, or ""). Descriptor 3 gets the answers:
id and pid when a minion has started, id and status (as of wait) when it has ended.
"""
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import sys

# What a minion imports until it serves, outside of its loader. No thread, no socket and no
# context of ZeroMQ comes from these. A release may lack some.
IMPORTS = """
salt.scripts salt.cli.daemons salt.minion salt.utils.debug salt.utils.process salt.channel.server
salt.transport.zeromq salt.transport.tcp salt.modules.cmdmod salt.modules.network salt.modules.smbios
salt.grains.extra salt.utils.dns zmq.asyncio zmq.eventloop.zmqstream multiprocessing.synchronize
multiprocessing.popen_fork cryptography.hazmat.bindings.openssl.binding setproctitle
""".split()

libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_REC, MS_SLAVE = 16384, 1 << 19
MNT_DETACH = 2


def system(result):
    """Raises the error of a system call that returned less than zero."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enter(net):
    """Enters a network namespace as "ip netns exec" does, with its /sys."""
    with open("/run/netns/" + net) as namespace:
        system(libc.setns(namespace.fileno(), CLONE_NEWNET))
    system(libc.unshare(CLONE_NEWNS))
    system(libc.mount(b"", b"/", b"none", MS_SLAVE | MS_REC, None))
    libc.umount2(b"/sys", MNT_DETACH)  # there may be none
    system(libc.mount(net.encode(), b"/sys", b"sysfs", 0, None))


def become(server, request):
    """Makes the child of a fork what the start of a program would have made it."""
    os.setpgid(0, 0)  # as the server does: one of them is first
    system(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != server:
        os._exit(1)

    for path, flags, descriptors in (
        ("/dev/null", os.O_RDONLY, (0,)),
        (request["out"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, (1, 2)),
    ):
        opened = os.open(path, flags, 0o600)
        for descriptor in descriptors:
            os.dup2(opened, descriptor)
        os.close(opened)

    if request["net"]:
        enter(request["net"])

    os.environ.clear()
    os.environ.update(request["env"])
    if "PYTHONFAULTHANDLER" in os.environ:
        faulthandler.enable()

    sys.argv = request["args"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    sys.modules["setproctitle"].setproctitle(" ".join([sys.executable] + sys.argv))
    system(libc.prctl(PR_SET_NAME, os.path.basename(sys.argv[0]).encode(), 0, 0, 0))


def serve(answers):
    """Forks for each request. Returns True in a child, and False when no more requests come."""
    server = os.getpid()
    minions = {}  # pidfd: (id, pid)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    pending = b""

    def answer(**fields):
        os.write(answers, json.dumps(fields).encode() + b"\n")

    while True:
        for descriptor, _ in poll.poll():
            if descriptor != 0:
                poll.unregister(descriptor)
                os.close(descriptor)
                number, pid = minions.pop(descriptor)
                answer(id=number, status=os.waitpid(pid, 0)[1])
                continue

            read = os.read(0, 65536)
            if not read:
                return False
            *lines, pending = (pending + read).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    for inherited in [answers, *minions]:
                        os.close(inherited)
                    become(server, request)
                    return True
                os.setpgid(pid, pid)  # before anybody kills the group
                descriptor = os.pidfd_open(pid)
                poll.register(descriptor, select.POLLIN)
                minions[descriptor] = (request["id"], pid)
                answer(id=request["id"], pid=pid)


def load():
    for name in IMPORTS:
        try:
            importlib.import_module(name)
        except ImportError:
            if name in ("salt.scripts", "salt.cli.daemons", "salt.minion", "setproctitle"):
                raise
    sys.modules["setproctitle"].getproctitle()  # finds the command line, before a child changes the environment
    gc.collect()
    gc.freeze()  # a minion's collector leaves the pages alone that it shares with us


load()
if serve(3):
    sys.exit(sys.modules["salt.scripts"].salt_minion())
