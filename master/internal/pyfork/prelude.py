# What our programs for Salt's Python begin with (pyfork.Start): frames, logging, and what
# a parent and its workers do about each other. A frame is a big-endian 32 bit length and
# a MessagePack map. A parent gets its settings on standard input, and its orders on
# descriptor CONTROL.
import gc
import json
import logging
import os
import signal
import socket
import struct
import sys

CONTROL = 3
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def read_exact(read, size):
    parts = []
    while size:
        part = read(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_frame(read, limit):
    head = read_exact(read, 4)
    if head is None:
        return None
    (size,) = struct.unpack(">I", head)
    if size > limit:
        raise ValueError(f"a frame of {size} bytes is too long")
    return read_exact(read, size)


def send_frame(sock, packed):
    sock.sendall(struct.pack(">I", len(packed)) + packed)


def receive_settings():
    with os.fdopen(0, "rb", buffering=0, closefd=False) as stdin:
        raw = read_frame(stdin.read, 1 << 26)
    try:
        import msgpack
    except ImportError:
        import salt.utils.msgpack as msgpack
    return msgpack.unpackb(raw, raw=False, strict_map_key=False)


def salt_extension(code, data):
    """What Salt packs beyond MessagePack, as Salt unpacks it: times, and constants."""
    import salt.payload
    import salt.utils.msgpack

    packed = salt.utils.msgpack.ExtType(code, data)
    try:
        return salt.payload.loads(salt.utils.msgpack.packb(packed, use_bin_type=True))
    except Exception:  # pylint: disable=broad-except
        return packed


def tell(control, **message):
    """Says something to the master (pyfork.Message)."""
    if "error" in message:
        message["error"] = message["error"][:2000]
    control.send(json.dumps(message).encode())


class JSONLines(logging.Handler):
    """One line of JSON per record, short enough to be written in one piece (PIPE_BUF)."""

    longest = 4096  # bytes; an escaped character has up to twelve

    held = None  # records that wait until it is known whether they count
    jid = ""  # of the job for which this process works

    def emit(self, record):
        if self.held is not None:
            self.held.append(record)
            return
        try:
            os.write(2, self.line(record))
        except Exception:  # pylint: disable=broad-except
            pass

    def line(self, record):
        text = self.format(record)
        line = {"level": record.levelno, "logger": record.name[:200], "text": text}
        if self.jid:
            line["jid"] = self.jid
        cut = self.longest
        while len(packed := json.dumps(line).encode() + b"\n") > self.longest:
            line["text"] = text[:cut] + "..."
            cut = cut * 3 // 4
        return packed


def setup_logging(level):
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(JSONLines())
    root.setLevel(level)
    logging.captureWarnings(True)


def silence(salt):
    """
    Keeps Salt's library from saying again what the master has said of its options, and
    that something is not closed which ends with the process.
    """
    if hasattr(salt.config, "_validate_opts"):
        salt.config._validate_opts = lambda opts: True
    try:  # from 3008 on
        from salt.utils import resource_warnings

        resource_warnings.warn_until_close = lambda *_, **__: None
    except ImportError:
        pass


def prctl(option, value):
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except Exception:  # pylint: disable=broad-except
        pass


def freeze_loaded():
    """
    Makes what is loaded part of all workers, whose collectors leave it alone. Garbage is
    collected from here on.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def die_with_parent(parent):
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(4)


def adopt():
    """Makes what children leave running, such as gpg's agent, children of this process."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def work_and_exit(work, name):
    """The life of a forked worker; nothing of its parent's follows."""
    code = 1
    try:
        work()
        code = 0
    except (BrokenPipeError, ConnectionResetError):
        code = 0
    except BaseException:  # pylint: disable=broad-except
        logging.getLogger(name).exception("a worker ends")
    finally:
        os._exit(code)


def children():
    """The processes whose parent this one is, zombies included."""
    found, me = set(), os.getpid()
    try:
        for task in os.listdir(f"/proc/{me}/task"):
            with open(f"/proc/{me}/task/{task}/children", encoding="ascii") as listed:
                found.update(int(pid) for pid in listed.read().split())
        return found
    except FileNotFoundError:  # a thread that has just ended, or a kernel without the list
        pass
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                if int(stat.read().rpartition(b")")[2].split()[1]) == me:
                    found.add(int(pid))
        except OSError:
            pass
    return found


def signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Wakeups:
    """A descriptor to read from that wakes whoever waits for it when a child ends."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self.writer, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)

    def fileno(self):
        return self.reader

    def clear(self):
        try:
            os.read(self.reader, 4096)
        except BlockingIOError:
            pass

    def forget(self):
        """What a worker does first: signals are its own."""
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.close(self.reader)
        os.close(self.writer)


