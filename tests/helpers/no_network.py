"""Runs a program that the kernel ends at its first socket that is not a Unix one: it and all processes it starts.

``python -m tests.helpers.no_network PROGRAM ARGUMENTS...`` installs a seccomp filter and becomes the program. A
violation ends the process that committed it by SIGSYS, which nothing can catch. Linux on x86-64 and ARM64; needs no
rights.
"""

import ctypes
import os
import platform
import struct
import sys

MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""AUDIT_ARCH_* and the number of `socket` (linux/audit.h, asm/unistd.h)."""
IO_URING_SETUP = 425
"""It opens sockets, too, past any filter of system calls."""
AF_UNIX = 1

LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
"""Instructions of classic BPF (linux/bpf_common.h): load a word, two jumps, return."""
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
"""Offsets in `struct seccomp_data`."""
X32 = 0x40000000
"""Numbers from here on are calls of the x32 ABI."""
ALLOW, KILL = 0x7FFF0000, 0x80000000
"""SECCOMP_RET_ALLOW and SECCOMP_RET_KILL_PROCESS."""
SET_SECCOMP, SET_NO_NEW_PRIVILEGES, FILTER = 22, 38, 2
"""Of prctl (linux/prctl.h, linux/seccomp.h)."""


def supported() -> bool:
    return sys.platform == "linux" and platform.machine() in MACHINES


def install_filter() -> None:
    """For this process and all it will start; it cannot be taken off. Raises OSError."""
    architecture, socket = MACHINES[platform.machine()]
    program = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 0, 7, architecture),  # jumps count from the next instruction; 9 kills, 8 allows
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 5, 0, X32),
        (EQUAL, 4, 0, IO_URING_SETUP),
        (EQUAL, 0, 2, socket),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (EQUAL, 0, 1, AF_UNIX),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, KILL),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (SET_SECCOMP, FILTER, filter_, 0, 0)):
        if libc.prctl(*(ctypes.c_ulong(v) if isinstance(v, int) else v for v in call)):
            raise OSError(ctypes.get_errno(), "the filter cannot be installed")


if __name__ == "__main__":
    install_filter()
    os.execv(sys.argv[1], sys.argv[1:])
