"""The drop-ins of examples/deploy/systemd on a hardened unit: `systemd-analyze verify` reads them, and the service starts as systemd would start it: with
the variables, command, ambient capabilities, system calls, memory limit and read-only system of the unit.

    systemd_units.py python|node|java
"""

import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import receiver
from container import Container, clock, end, expect, folder, loopback, row, send_reports, tail, wait_for_port
from dockerfile import BASE_PATH
from operator_images import PACKAGE as OPERATOR_PACKAGE
from operator_images import program_of
from seccomp_profiles import of_systemd

EXAMPLE = os.path.join(os.environ["DEPLOY_EXAMPLES"], "systemd")
HERE = os.path.dirname(os.path.abspath(__file__))
UNIT = "checkout.service"
CHECKOUT = 991
WORK = {"python": "render_report", "node": "renderReport", "java": "renderReport"}
OPERATOR = {"python": "python", "node": "nodejs", "java": "java"}


class Unit(dict):
    """The [Service] settings of a unit with its drop-ins: lists of values; an empty value clears the list."""

    def __init__(self, paths):
        super().__init__()
        for path in paths:
            with open(path) as file:
                lines = file.read().replace("\\\n", " ").splitlines()
            section = None
            for line in map(str.strip, lines):
                if line.startswith("["):
                    section = line
                elif section == "[Service]" and line and line[0] not in "#;":
                    key, _, value = line.partition("=")
                    self[key] = self.get(key, []) + [value] if value else []

    def one(self, key):
        values = self[key]
        expect(len(values) == 1, f"{key} has the values {values}")
        return values[0]

    def environment(self):
        return dict(word.split("=", 1) for value in self.get("Environment", []) for word in shlex.split(value))


def install(language, image, command):
    """The unit and the drop-ins below the image's /etc, as the files say; returns the paths, in the order of systemd."""
    directory = f"{image}/etc/systemd/system"
    dropins = f"{directory}/{UNIT}.d"
    os.makedirs(dropins)
    with open(f"{HERE}/functions/{UNIT}") as file:
        text = file.read().replace("PROGRAM", " ".join(command))
    with open(f"{directory}/{UNIT}", "w") as file:
        file.write(text)
    for name in ("spanprof.conf", f"{language}.conf"):
        with open(os.path.join(EXAMPLE, name)) as file:
            text = file.read()
        # The first line has the path.
        path = text.splitlines()[0].lstrip("# ").split(";")[0]
        expect(os.path.dirname(path) == f"/etc/systemd/system/{UNIT}.d", f"{name} begins with {path}")
        shutil.copy(os.path.join(EXAMPLE, name), f"{image}{path}")
    return [f"{directory}/{UNIT}", *sorted(os.path.join(dropins, name) for name in os.listdir(dropins))]


def package_into(language, image):
    """The package where the drop-in of its language expects it."""
    package = os.path.join(os.environ["DEPLOY_PACKAGES"], f"spanprof-{OPERATOR_PACKAGE[OPERATOR[language]]}")
    os.makedirs(f"{image}/opt/spanprof", exist_ok=True)
    if language == "python":
        # A virtual environment is made where it is used: in the image.
        python = os.path.realpath(sys.executable)
        run_in(image, [python, "-m", "venv", "/srv/checkout/venv"])
        run_in(image, ["sh", "-c", f"/srv/checkout/venv/bin/pip install --quiet --no-deps {package}"])
    elif language == "node":
        subprocess.run(["sh", "-c", f"npm install --silent --no-audit --no-fund --prefix {image}/opt/spanprof {package}"], check=True)
    else:
        subprocess.run(["sh", "-c", f"cp {package} {image}/opt/spanprof/spanprof.jar"], check=True)
        java = f"{os.environ['DEPLOY_JAVA_HOME']}/bin/java"
        subprocess.run([java, "-cp", f"{image}/opt/spanprof/spanprof.jar", "io.spanprof.Unpack", f"{image}/opt/spanprof"], check=True)


def run_in(image, command):
    log = f"{image}.log"
    code = Container(image, command, env={**os.environ, "HOME": "/root"}, changes_image=True).run(log, 300)
    expect(code == 0, f"{command} ended with {code}\n{tail(log)}")


def verify(paths):
    """systemd's own reading of the unit with its drop-ins: no warning about the files."""
    ended = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", paths[0]], capture_output=True, text=True)
    lines = [line for line in ended.stderr.splitlines() if UNIT in line and "is not executable" not in line]
    expect(not lines, "systemd-analyze: " + "\n".join(lines))


def service(image, unit, state, hosts=()):
    """The service of a unit."""
    memory = {"M": 1 << 20}[unit.one("MemoryMax")[-1]] * int(unit.one("MemoryMax")[:-1])
    ambient = [name.removeprefix("CAP_").lower() for value in unit.get("AmbientCapabilities", []) for name in value.split()]
    calls = [name for value in unit["SystemCallFilter"] for name in value.split()]
    rules = of_systemd(calls, getattr(errno, unit.one("SystemCallErrorNumber")))
    return Container(
        image, shlex.split(unit.one("ExecStart")), env={"PATH": BASE_PATH, **unit.environment()}, user=CHECKOUT, group=CHECKOUT,
        capabilities=ambient, ambient=ambient, seccomp=rules, no_new_privileges=unit.one("NoNewPrivileges") == "yes",
        read_only=unit.one("ProtectSystem") == "strict", memory=memory, tmpfs={"/tmp": "mode=1777"}, hosts=list(hosts),
        mounts=[(state, f"/var/lib/{unit.one('StateDirectory')}", True)],
    )


def under_load(expected, container, language, received):
    """CPU time of the work of a service, which must run with the expected clock."""
    for path in received.files():
        os.remove(path)
    log = os.path.join(folder(f"systemd-{language}/{expected}"), "log")
    container.spec["env"]["SPANPROF_UPLOAD_INTERVAL"] = "1"
    process = container.start(log)
    try:
        wait_for_port(8000, process, log)
        send_reports(4)
        time.sleep(3)
        expect(clock(process) == expected, f"{clock(process)} is the clock, expected {expected}\n{tail(log)}")
    finally:
        end(process, signal.SIGKILL)
    work = receiver.below(received.rows("cpu"), WORK[language])
    expect(work > 0, f"no CPU time in {WORK[language]}\n{tail(log)}")
    return work


def main(language):
    image, command = program_of(OPERATOR[language], "/srv/checkout")
    if language == "python":
        os.rename(f"{image}/srv/checkout/shop.py", f"{image}/srv/checkout/app.py")
    paths = install(language, image, command)
    package_into(language, image)
    verify(paths)
    unit = Unit(paths)
    state = folder(f"systemd-{language}/state")
    os.chown(state, CHECKOUT, CHECKOUT)
    loopback()
    received = receiver.Receiver(folder(f"systemd-{language}/received"))
    work = under_load("thread_timer", service(image, unit, state), language, received)
    # The line that the comment of the drop-in gives for such a unit.
    with open(os.path.join(EXAMPLE, "spanprof.conf")) as file:
        [line] = [line.lstrip("# ").strip() for line in file if line.startswith("#   SystemCallFilter=")]
    unit["SystemCallFilter"].append(line.partition("=")[2])
    perf = under_load("perf", service(image, unit, state), language, received)
    return f"CPU time of the work: {work:.2f} s with thread timers, {perf:.2f} s with the perf clock"


if __name__ == "__main__":
    row("systemd", main)
