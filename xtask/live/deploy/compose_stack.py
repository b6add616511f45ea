"""The services of a Compose file of examples/deploy: programs built from their Go modules, and a service whose image is built from its Dockerfile,
each with the command, files, variables and limits of the file, and with an address of its own. Pyroscope must have the work of the
requests; with object storage also when its ingesters have ended.

    compose_stack.py compose|pyroscope-distributed
"""

import glob
import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml
from container import Container, end, expect, folder, loopback, row, send_reports, tail, wait_for_port
from docker_images import DOCKER_CAPABILITIES, context_of, quantity
from dockerfile import BASE_PATH, Image
from seccomp_profiles import runtime_default

EXAMPLES = os.environ["DEPLOY_EXAMPLES"]
#: Of the published images: the entry point, the user, the volumes, the program of this machine, and the port that it listens on.
IMAGES = {
    "otel/opentelemetry-collector-contrib": ("/otelcol-contrib", 10001, [], "DEPLOY_COLLECTOR", 4318),
    "grafana/pyroscope": ("/usr/bin/pyroscope", 10001, ["/data"], "DEPLOY_PYROSCOPE", 4040),
    "versity/versitygw": ("/usr/local/bin/versitygw", 0, [], "DEPLOY_OBJECTS", 7070),
}
KNOWN = {"build", "image", "command", "environment", "ports", "depends_on", "read_only", "tmpfs", "cap_drop", "security_opt", "mem_limit", "volumes",
         "hostname", "stop_grace_period"}
QUERY = 'process_cpu:cpu:nanoseconds:cpu:nanoseconds{service_name="checkout"}'
#: For the readiness of Pyroscope and for a profile in it.
PATIENCE = 120


class Stack:
    """The services of a Compose file."""

    def __init__(self, name):
        self.name, self.directory = name, os.path.join(EXAMPLES, name)
        with open(os.path.join(self.directory, "compose.yaml")) as file:
            compose = yaml.safe_load(file)
        self.services, self.processes, self.images = compose["services"], {}, {}
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(self.services, 2)}
        self.networks, self.logs = {}, folder(f"{self.name}-logs")
        self.volumes = {volume: folder(f"{self.name}-volume-{volume}") for volume in compose["volumes"]}
        for volume in self.volumes.values():
            os.chown(volume, 10001, 10001)

    def build(self):
        for name, service in self.services.items():
            if "build" in service:
                context = os.path.normpath(os.path.join(self.directory, service["build"]["context"]))
                expect(context.endswith("python-fastapi"), f"the context {context} has no package here")
                dockerfile = os.path.normpath(os.path.join(context, service["build"]["dockerfile"]))
                self.images[name] = Image(f"{self.name}-{name}", dockerfile, context_of("python"))

    def connect(self):
        """A network of each service, and a bridge between them, which this process is connected to."""
        loopback()
        subprocess.run(["ip", "link", "add", "bridge0", "type", "bridge"], check=True)
        subprocess.run(["ip", "address", "add", "10.77.0.1/24", "dev", "bridge0"], check=True)
        subprocess.run(["ip", "link", "set", "bridge0", "up"], check=True)
        for number, (name, address) in enumerate(self.addresses.items()):
            # Ends with this process.
            words = ["setpriv", "--pdeathsig=KILL", "unshare", "--net", "sleep", "infinity"]
            holder = self.networks[name] = subprocess.Popen(words)
            own = os.readlink("/proc/self/ns/net")
            while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
                time.sleep(0.01)
            link = f"port{number}"
            words = ["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)]
            subprocess.run(words, check=True)
            subprocess.run(["ip", "link", "set", link, "master", "bridge0", "up"], check=True)
            inside = f"ip link set lo up && ip address add {address}/24 dev eth0 && ip link set eth0 up"
            subprocess.run(["nsenter", f"--net=/proc/{holder.pid}/ns/net", "sh", "-ec", inside], check=True)

    def mounts_of(self, service):
        """Bind mounts of files beside the Compose file, and named volumes."""
        found = []
        for text in service.get("volumes", []):
            source, target, *mode = text.split(":")
            if source in self.volumes:
                found.append((self.volumes[source], target, True))
            else:
                path = os.path.normpath(os.path.join(self.directory, source))
                expect(os.path.exists(path), f"no {path} for the volume {text}")
                found.append((path, target, mode != ["ro"]))
        return found

    def settings_of(self, name):
        service = self.services[name]
        expect(set(service) <= KNOWN, f"keys that this suite does not know: {set(service) - KNOWN}")
        dropped, security = service.get("cap_drop", []), service.get("security_opt", [])
        expect(dropped in ([], ["ALL"]) and security in ([], ["no-new-privileges:true"]), f"not known here: {dropped}, {security}")
        capabilities = [] if dropped else DOCKER_CAPABILITIES
        return {
            "env": {key: str(value) for key, value in service.get("environment", {}).items()}, "hostname": service.get("hostname", name),
            "capabilities": capabilities, "seccomp": runtime_default([name.upper() for name in capabilities]),
            "no_new_privileges": bool(security), "read_only": service.get("read_only", False), "mounts": self.mounts_of(service), "hosts": [],
            "memory": quantity(service["mem_limit"].upper() + "i") if "mem_limit" in service else None,
            "tmpfs": {path: "noexec,nosuid,nodev,mode=1777" for path in service.get("tmpfs", [])},
            "network": self.networks[name].pid, "addresses": {**self.addresses, service.get("hostname", name): self.addresses[name]},
        }

    def container(self, name):
        """The container of a service, and the port that it listens on."""
        settings = self.settings_of(name)
        if name in self.images:
            return self.images[name].container(**settings), self.images[name].port
        entry, user, volumes, variable, port = IMAGES[self.services[name]["image"].split(":")[0]]
        for target in volumes:
            if all(target != mount for _, mount, _ in settings["mounts"]):
                volume = folder(f"{self.name}-volume-of-{name}")
                os.chown(volume, user, user)
                settings["mounts"].append((volume, target, True))
        settings["mounts"] = [(os.environ[variable], entry, False), *settings["mounts"]]
        settings["env"] = {"PATH": BASE_PATH, **settings["env"]}
        root = folder(f"{self.name}-{name}/root")
        return Container(root, [entry, *self.services[name]["command"]], user=user, group=user, **settings), port

    def start(self, name):
        container, port = self.container(name)
        log = os.path.join(self.logs, name)
        self.processes[name] = container.start(log)
        wait_for_port(port, self.processes[name], log, host=self.addresses[name])

    def end(self, name):
        return end(self.processes.pop(name), within=60)

    def up(self):
        """Starts each service when those that it depends on listen."""
        while len(self.processes) < len(self.services):
            is_ready = lambda name: set(self.services[name].get("depends_on", [])) <= set(self.processes)  # noqa: E731
            self.start(next(name for name in self.services if name not in self.processes and is_ready(name)))

    def pyroscopes(self):
        return [name for name in self.processes if self.services[name].get("image", "").startswith("grafana/pyroscope")]

    def wait_for(self, text, question):
        """The first answer to a question, repeated for a while."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                if answer := question():
                    return answer
                reason = "no answer"
            except OSError as error:
                reason = f"{error} {error.read()[:500] if isinstance(error, urllib.error.HTTPError) else ''}"
            expect(time.monotonic() < until, f"{text}: {reason}\n{self.last_lines()}")
            time.sleep(1)

    def last_lines(self):
        return "\n".join(f"-- {name}\n{tail(os.path.join(self.logs, name))[-1500:]}" for name in self.services)

    def down(self):
        for process in [*self.processes.values(), *self.networks.values()]:
            if hasattr(process, "memory_group"):
                end(process)
            else:
                process.kill()
                process.wait()


def fetched(address, path):
    with urllib.request.urlopen(f"http://{address}:4040{path}", timeout=30) as answer:
        return answer.read()


def render(address):
    """The flame graph that Pyroscope has of the work of the requests; None if it has none."""
    words = urllib.parse.urlencode({"query": QUERY, "from": "now-1h", "until": "now", "format": "json"})
    found = json.loads(fetched(address, f"/pyroscope/render?{words}"))["flamebearer"]
    return found if "render_report" in found["names"] else None


def after_the_ingesters(stack, address, before):
    """Ends the ingesters, whose volumes are lost: Pyroscope then has the profile from the object storage alone."""
    # By default, the object storage answers for blocks older than 3 hours and times before the last 4 hours only; the ingesters answer for
    # the rest.
    stack.services["store-gateway"]["command"].append("-blocks-storage.bucket-store.ignore-blocks-within=0")
    stack.services["querier"]["command"].append("-querier.query-store-after=0")
    stack.end("querier")
    stack.start("querier")
    stack.wait_for("no render_report by the second querier", lambda: render(address))
    ingesters = [name for name in stack.pyroscopes() if name.startswith("ingester")]
    for name in ingesters:
        expect(stack.end(name) is not None, f"{name} did not end by SIGTERM")
        subprocess.run(["sh", "-c", f"rm -rf {stack.volumes[name]}/*"], check=True)
    blocks = glob.glob(f"{stack.volumes['objects']}/*/phlaredb/*/meta.json")
    expect(len(blocks) == len(ingesters), f"{blocks} in the object storage, expected a block of each of {ingesters}")
    # A store-gateway reads the list of blocks at its start, and every 5 minutes.
    stack.end("store-gateway")
    for name in [*ingesters, "store-gateway"]:
        stack.start(name)
    found = stack.wait_for("no render_report from the object storage", lambda: render(address))
    expect(found["numTicks"] == before["numTicks"], f"{found['numTicks']} ns from the object storage, {before['numTicks']} ns before")
    return f", and the same from {len(blocks)} blocks of the object storage alone"


def main(name):
    stack = Stack(name)
    stack.build()
    try:
        stack.connect()
        stack.up()
        for pyroscope in stack.pyroscopes():
            address = stack.addresses[pyroscope]
            stack.wait_for(f"{pyroscope} is not ready", lambda: fetched(address, "/ready"))
        send_reports(4, stack.addresses["checkout"])
        stack.end("checkout")
        [frontend] = [it for it, service in stack.services.items() if any("4040:4040" in port for port in service.get("ports", []))]
        found = stack.wait_for("no render_report", lambda: render(stack.addresses[frontend]))
        text = f"{found['numTicks'] / 1e9:.2f} s of CPU time of the service in Pyroscope, through the Collector"
        if "objects" in stack.services:
            text += after_the_ingesters(stack, stack.addresses[frontend], found)
        return text
    finally:
        stack.down()


if __name__ == "__main__":
    row("compose", main)
