"""Runs a program under a systemd unit's restrictions, as far as they can be had without systemd:

    confined.py UNIT PROGRAM [ARGUMENT...]

its SystemCallFilter, SystemCallErrorNumber, NoNewPrivileges and UMask; as root also without any capability and with all files
read-only. The account stays the caller's, so that it can read the caller's programs and models.
"""

import ctypes
import errno
import os
import re
import subprocess
import sys

libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 1 << 18
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1


def checked(result, what):
    if result != 0:
        code = ctypes.get_errno() or -result
        raise OSError(code, f"{what}: {os.strerror(code)}")


def settings(unit):
    """Its values by key; one that is given several times has them all."""
    found = {}
    with open(unit) as file:
        for line in file:
            if match := re.match(r"(\w+)=(.*)", line):
                found.setdefault(match[1], []).append(match[2].strip())
    return found


def members(group):
    """The system calls of one of systemd's groups."""
    lines = subprocess.run(["systemd-analyze", "syscall-filter", group], capture_output=True, text=True,
                           check=True).stdout.splitlines()[1:]
    names = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    return {call for name in names for call in (members(name) if name.startswith("@") else [name])}


def allowed(filters):
    """The calls that SystemCallFilter lets pass; the first line is an allow list."""
    calls = members("@default")
    for line in filters:
        takes_away = line.startswith("~")
        named = {call for name in line.lstrip("~").split() for call in (members(name) if name[0] == "@" else {name})}
        calls = calls - named if takes_away else calls | named
    return calls


def filter_calls(calls, error):
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(0x00050000 | error)))  # SCMP_ACT_ERRNO
    for call in sorted(calls):
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:  # others are of other processors
            checked(seccomp.seccomp_rule_add_array(context, ctypes.c_uint32(0x7FFF0000), number, 0, None), call)
    checked(seccomp.seccomp_load(context), "seccomp_load")


def make_read_only():
    checked(libc.unshare(CLONE_NEWNS), "unshare")
    checked(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    checked(libc.syscall(MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, ctypes.sizeof(attributes)),
            "mount_setattr")


def main():
    unit = settings(sys.argv[1])
    calls = allowed(unit["SystemCallFilter"])
    error = getattr(errno, unit["SystemCallErrorNumber"][0])
    os.umask(int(unit["UMask"][0], 8))
    if os.geteuid() == 0:
        if unit["ProtectSystem"] == ["strict"]:
            make_read_only()
        for capability in range(41):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for those that this kernel has not
    assert unit["NoNewPrivileges"] == ["yes"]
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    calls |= {"execve"}  # systemd's own, by which the program begins
    filter_calls(calls, error)
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
