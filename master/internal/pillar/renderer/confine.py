"""Confines a worker that renders what nobody has approved (package diff).

The templates of such a worker are recorded only, which refuses all that has an effect
(reads.py). This is the second fence: should a template get out of Jinja's sandbox, the
kernel lets the process start no program, open no socket and change no file.
"""

import errno
import struct

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

# By machine: the number of the architecture, the calls that are refused, and those
# that open a file with the position of their flags. <asm/unistd_64.h> and <asm-generic/unistd.h>
# have, in this order: execve execveat socket socketpair connect bind listen accept accept4 sendmmsg
# ptrace kill tkill tgkill process_vm_readv process_vm_writev io_uring_setup mount
# unshare setns chroot bpf perf_event_open keyctl memfd_create pidfd_getfd pidfd_send_signal
# openat2 creat mkdir mkdirat mknod mknodat unlink unlinkat rmdir rename renameat renameat2 link linkat
# symlink symlinkat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat truncate ftruncate
# utimensat setxattr lsetxattr fsetxattr fork vfork clone clone3 prlimit64 open_by_handle_at utime utimes
# futimesat removexattr lremovexattr fremovexattr fallocate setxattrat removexattrat.
REFUSED = {
    "x86_64": (
        0xC000003E,
        "59 322 41 53 42 49 50 43 288 307 101 62 200 234 310 311 425 165 272 308 161 321 298"
        " 250 319 438 424 437 85 83 258 133 259 87 263 84 82 264 316 86 265 88 266 90 91 268 452"
        " 92 93 94 260 76 77 280 188 189 190 57 58 56 435 302 304 132 235 261 197 198 199 285 463 466",
        ((2, 1), (257, 2)),
    ),
    "aarch64": (
        0xC00000B7,
        "221 281 198 199 203 200 201 202 242 269 117 129 130 131 270 271 425 40 97 268 51 280"
        " 241 219 279 438 424 437 34 33 35 38 276 37 36 52 53 452 55 54 45 46 88 5 6 7"
        " 220 435 261 265 14 15 16 47 463 466",
        ((56, 2),),
    ),
}
WRITES = 0o3 | 0o100 | 0o1000 | 0o2000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND


def instruction(code, value, yes=0, no=0):
    return struct.pack("=HBBI", code, yes, no, value)


def seccomp_filter(machine):
    """The filter as the kernel reads it: seccomp(2), struct sock_filter."""
    architecture, numbers, opening = REFUSED[machine]
    refuse = instruction(RETURN, SECCOMP_RET_ERRNO | errno.EPERM)
    code = [
        instruction(LOAD, 4),
        instruction(EQUAL, architecture, 1, 0),
        instruction(RETURN, SECCOMP_RET_KILL),
        instruction(LOAD, 0),
        instruction(AT_LEAST, 0x40000000, 0, 1),  # x32
        refuse,
    ]
    for number in sorted(int(n) for n in numbers.split()):
        code += [instruction(EQUAL, number, 0, 1), refuse]
    for number, argument in opening:
        code += [
            instruction(EQUAL, number, 0, 4),
            instruction(LOAD, 16 + 8 * argument),
            instruction(ANY_BIT, WRITES, 0, 1),
            refuse,
            instruction(RETURN, SECCOMP_RET_ALLOW),
        ]
    return b"".join(code + [instruction(RETURN, SECCOMP_RET_ALLOW)]), len(code) + 1


def confine():
    """Takes from this process what a template has no need of. It fails where that is not possible."""
    import ctypes
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    packed, length = seccomp_filter(os.uname().machine)
    buffer = ctypes.create_string_buffer(packed)
    program = struct.pack("=HxxxxxxQ", length, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(program, 16), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "a renderer cannot be confined")
