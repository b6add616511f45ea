"""Installs a seccomp filter and executes another program.

    filtered.py RULES.json PROGRAM [WORD…]

The rules: {"default": ACTION, "calls": {NAME: ACTION}}; an action is `allow`, `kill` or the number of an error.
"""

import ctypes
import json
import os
import re
import struct
import sys

HEADERS = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"]
AUDIT_ARCH_X86_64 = 0xC000003E
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
#: Offsets in struct seccomp_data.
NUMBER, ARCHITECTURE = 0, 4


def numbers():
    """System call numbers of x86-64 by name."""
    header = next((path for path in HEADERS if os.path.exists(path)), None)
    if header is None:
        sys.exit(f"no system call numbers: none of {', '.join(HEADERS)} is there; apt-get install linux-libc-dev")
    with open(header) as file:
        return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", file.read())}


def value(action):
    """SECCOMP_RET_* of an action."""
    return {"allow": 0x7FFF0000, "kill": 0x80000000}.get(action) or 0x00050000 | int(action)


def program(rules):
    """Instructions of the filter, in classic BPF."""
    known = numbers()
    code = [(LOAD_WORD, 0, 0, ARCHITECTURE), (JUMP_IF_EQUAL, 1, 0, AUDIT_ARCH_X86_64), (RETURN, 0, 0, value("kill"))]
    code.append((LOAD_WORD, 0, 0, NUMBER))
    for name, action in rules["calls"].items():
        # Calls of other architectures, and calls newer than the headers, have no number.
        if name in known:
            code += [(JUMP_IF_EQUAL, 0, 1, known[name]), (RETURN, 0, 0, value(action))]
    code.append((RETURN, 0, 0, value(rules["default"])))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code), len(code)


def install(code, length):
    """Installs the filter, a result of `program`, for this process and the program that it executes."""
    buffer = ctypes.create_string_buffer(code, len(code))
    described = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", length, ctypes.addressof(buffer)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described, 0, 0)):
        if prctl(*words) != 0:
            sys.exit(f"prctl({words[0]}) failed: {os.strerror(ctypes.get_errno())}")


def main():
    with open(sys.argv[1]) as file:
        rules = json.load(file)
    install(*program(rules))
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
