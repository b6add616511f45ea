"""Runs a program as a container runtime would: its own root, processes, host name and devices; a user, capabilities, a seccomp filter,
a memory limit, a read-only root.

The root is a copy-on-write view of this machine's root with an image's files above it. Needs root and Linux namespaces; no image is
downloaded. `Container.words` gives the command; this file is also the program inside the namespaces.
"""

import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "field", "seccomp"))
import filtered  # noqa: E402

DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}
CONTROL_GROUPS = "/sys/fs/cgroup"
#: The container's root is built here, in a file system of its mount namespace.
WORK = "/mnt"
#: Where a container with another root than this machine's has this machine's programs, and their loader.
HOST, LOADER = "/.host", os.path.realpath("/lib64/ld-linux-x86-64.so.2")
MEBIBYTE = 1 << 20
UNSHARED = ["--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=SIGKILL"]


class DeployFailure(Exception):
    """An example that does not do what it should."""


def expect(condition, message):
    if not condition:
        raise DeployFailure(message)


def row(title, cell):
    """Runs a cell with the argument of the program, and prints its row."""
    try:
        print(f"row: {title}, {sys.argv[1]}: {cell(sys.argv[1])}")
    except DeployFailure as failure:
        sys.exit(f"{title}, {sys.argv[1]}: {failure}")


def folder(name):
    """A fresh directory below target/live-deploy."""
    path = os.path.join(os.environ["DEPLOY_SCRATCH"], name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    # Users of containers traverse it.
    os.chmod(path, 0o755)
    return path


def copy_packages(pattern, context, without="musl|arm64|aarch64"):
    """Copies the packages that match, without those of other platforms, into the context of an image."""
    for file in glob.glob(os.path.join(os.environ["DEPLOY_PACKAGES"], f"spanprof-{pattern}")):
        if not re.search(without, os.path.basename(file)):
            shutil.copy(file, context)


class Container:
    """What a runtime knows of a container. `image` is the directory with the files of the image, `base` the root below them;
    `network`, if any, a process whose network the container has; `hosts` are names of the loopback, `addresses` are those of other
    containers by name."""

    def __init__(self, image, command, **settings):
        self.spec = {
            "image": image, "base": "/", "command": command, "env": {}, "cwd": "/", "user": 0, "group": 0, "groups": [], "capabilities": [], "ambient": [],
            "seccomp": None, "no_new_privileges": False, "read_only": False, "mounts": [], "tmpfs": {}, "shm": 64 * MEBIBYTE,
            "memory": None, "hosts": [], "hostname": "container", "changes_image": False, "network": None, "addresses": {},
        }
        unknown = set(settings) - set(self.spec)
        expect(not unknown, f"no such setting of a container: {unknown}")
        self.spec.update(settings)

    def start(self, log):
        """The process of the runtime; a group of its own."""
        group = memory_group(self.spec["memory"]) if self.spec["memory"] else None
        spec = tempfile.NamedTemporaryFile("w", suffix=".json", delete=False)
        with spec:
            json.dump({**self.spec, "memory_group": group}, spec)
        with open(log, "wb") as output:
            network = ["nsenter", f"--net=/proc/{self.spec['network']}/ns/net", "--"] if self.spec["network"] else []
            words = [*network, "unshare", *UNSHARED, "--", sys.executable, "-I", os.path.abspath(__file__), spec.name]
            process = subprocess.Popen(words, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)
        process.memory_group = group
        return process

    def run(self, log, limit=120):
        """Exit code of the container that ends by itself."""
        process = self.start(log)
        try:
            return process.wait(limit)
        finally:
            end(process, signal.SIGKILL)


def end(process, number=signal.SIGTERM, within=20):
    """Ends a container: `number` to the program, its exit code. Killed, with code None, if it does not end in time."""
    try:
        if process.poll() is None:
            for child in children(process.pid):
                os.kill(child, number)
            return process.wait(within)
        return process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None
    finally:
        if process.memory_group:
            os.rmdir(process.memory_group)
            process.memory_group = None


def memory_group(limit):
    """A control group with a memory limit, of version 1 or 2; the first process of the container joins it."""
    is_first = os.path.exists(f"{CONTROL_GROUPS}/memory/memory.limit_in_bytes")
    group = tempfile.mkdtemp(prefix="spanprof-deploy-", dir=f"{CONTROL_GROUPS}/memory" if is_first else CONTROL_GROUPS)
    try:
        # The users of containers read their limits.
        os.chmod(group, 0o755)
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if is_first else ("memory.max",):
            if not is_first or os.path.exists(f"{group}/{name}"):
                write(f"{group}/{name}", str(limit))
    except OSError:
        os.rmdir(group)
        raise
    return group


def children(pid):
    """The processes that unshare(1) started: the first of the container."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def clock(process):
    """The clock of the CPU samples in a container: perf events are file descriptors."""
    is_perf = any("perf_event" in target for child in children(process.pid) for target in open_files(child))
    return "perf" if is_perf else "thread_timer"


def open_files(pid):
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            # Closed since it was listed.
            continue


def loopback():
    """Moves this process into a network of its own, with a loopback: the ports of the examples are free there."""
    import ctypes
    import fcntl
    import struct

    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a network namespace")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        up = struct.pack("16sH14x", b"lo", 0x1 | 0x40)
        fcntl.ioctl(probe, 0x8914, up)


def wait_for_port(port, process, log, within=60, host="127.0.0.1"):
    """Waits until a program listens."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        expect(process.poll() is None, f"ended with {process.returncode} before it listened on {port}\n{tail(log)}")
        time.sleep(0.1)
    raise DeployFailure(f"nothing listens on {port} after {within} s\n{tail(log)}")


def get(path, host="127.0.0.1"):
    """The response of the service."""
    with urllib.request.urlopen(f"http://{host}:8000{path}", timeout=60) as answer:
        return answer.read().decode()


def send_reports(count, host="127.0.0.1"):
    """Requests whose work must be in the profiles."""
    for _ in range(count):
        get("/report?rows=60000", host)


def tail(log):
    with open(log, errors="replace") as file:
        return file.read()[-4000:]


def mount(*words):
    subprocess.run(["mount", *words], check=True)


def enter(spec):
    """Builds the root, enters it, and becomes the program."""
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "tmpfs", WORK)
    root, upper, inner = (os.path.join(WORK, name) for name in ("root", "upper", "work"))
    os.mkdir(root)
    if spec["changes_image"]:
        upper, inner = spec["image"], tempfile.mkdtemp(prefix="work-", dir=os.path.dirname(spec["image"]))
    else:
        os.mkdir(inner)
        # A copy: overlayfs refuses a lower directory inside another one, which / is.
        subprocess.run(["cp", "-a", spec["image"], upper], check=True)
    mount("-t", "overlay", "overlay", "-o", f"lowerdir={spec['base']},upperdir={upper},workdir={inner}", root)
    mount("-t", "proc", "proc", f"{root}/proc")
    mount("--rbind", "/sys", f"{root}/sys")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", f"{root}/dev")
    for name, (major, minor) in DEVICES.items():
        os.mknod(f"{root}/dev/{name}", 0o666 | 0o020000, os.makedev(major, minor))
        os.chmod(f"{root}/dev/{name}", 0o666)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    if spec["shm"]:
        os.mkdir(f"{root}/dev/shm")
        mount("-t", "tmpfs", "-o", f"size={spec['shm']},mode=1777,noexec,nosuid,nodev", "shm", f"{root}/dev/shm")
    if not spec["changes_image"]:
        own = [] if spec["hostname"] in spec["addresses"] else [spec["hostname"]]
        names = " ".join(["localhost", *own, *spec["hosts"]])
        write(f"{root}/etc/hosts", "".join([f"127.0.0.1 {names}\n", *(f"{ip} {name}\n" for name, ip in spec["addresses"].items())]))
    # Users of the image have access to a runtime in a directory of root, as pyenv's.
    os.chmod(f"{root}/root", 0o755)
    for path, options in spec["tmpfs"].items():
        os.makedirs(root + path, exist_ok=True)
        mount("-t", "tmpfs", "-o", options, "tmpfs", root + path)
    for source, target, writable in spec["mounts"]:
        target = root + target
        if os.path.isdir(source):
            os.makedirs(target, exist_ok=True)
        elif not os.path.exists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            write(target, "")
        mount("--bind", source, target)
        if not writable:
            mount("-o", "remount,bind,ro", target)
    if spec["base"] != "/":
        # For setpriv: that of Alpine has fewer options.
        os.makedirs(root + HOST, exist_ok=True)
        mount("--bind", "/", root + HOST)
    socket.sethostname(spec["hostname"])
    if spec["read_only"]:
        mount("-o", "remount,ro", root)
    # From headers of this machine.
    seccomp = filtered.program(spec["seccomp"]) if spec["seccomp"] else None
    # Not the copy of the image, which a container does not have in memory.
    if spec["memory_group"]:
        write(f"{spec['memory_group']}/cgroup.procs", "0")
    os.chroot(root)
    os.chdir(spec["cwd"])
    capabilities = ",".join(["-all", *(f"+{name}" for name in spec["capabilities"])])
    groups = ",".join(str(group) for group in spec["groups"])
    # Docker and Kubernetes set no ambient capabilities: an added one takes effect for root only.
    ambient = ",".join(["-all", *(f"+{name}" for name in spec["ambient"])])
    become = ["setpriv", f"--reuid={spec['user']}", f"--regid={spec['group']}", f"--groups={groups}" if groups else "--clear-groups",
              f"--inh-caps={ambient}", f"--ambient-caps={ambient}", f"--bounding-set={capabilities}"]
    if spec["no_new_privileges"]:
        become.append("--no-new-privs")
    if seccomp:
        filtered.install(*seccomp)
    os.environ.clear()
    os.environ.update(spec["env"])
    setpriv = [shutil.which("setpriv", path="/usr/bin:/bin")]
    if spec["base"] != "/":
        setpriv = [f"{HOST}{LOADER}", "--library-path", f"{HOST}/lib/x86_64-linux-gnu", f"{HOST}/usr/bin/setpriv"]
    os.execv(setpriv[0], [*setpriv, *become[1:], "--", *spec["command"]])


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    os.unlink(sys.argv[1])
    enter(spec)
