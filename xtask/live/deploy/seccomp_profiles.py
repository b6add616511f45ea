"""The seccomp filters of deployments: that of Docker and containerd for a container's capabilities, and those of systemd units."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(os.path.dirname(HERE), "field"), os.path.join(os.path.dirname(HERE), "field", "seccomp")]

import seccomp  # noqa: E402
from container import expect  # noqa: E402


def runtime_default(capabilities):
    rules = seccomp.docker([f"CAP_{name}" for name in capabilities])
    expect(rules is not None, "no Go toolchain, whose module cache has Docker's default profile; https://go.dev/dl")
    return rules


def of_systemd(names, error):
    """`SystemCallFilter=` with the set @system-service and further calls; others fail with `error`."""
    expect("@system-service" in names, f"SystemCallFilter={' '.join(names)} has no set that is known here")
    rules = seccomp.systemd()
    expect(rules is not None, "no systemd-analyze; apt-get install systemd")
    calls = {**rules["calls"], **dict.fromkeys((name for name in names if not name.startswith("@")), "allow")}
    return {"default": error, "calls": calls}
