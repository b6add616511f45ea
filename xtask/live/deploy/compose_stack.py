"""The services of examples/deploy/compose/compose.yaml: the Collector and Pyroscope, built from their Go modules, and a service whose image is built from its
Dockerfile, each with the command, files, variables and limits of the file. Pyroscope must have the work of the requests.

    compose_stack.py compose.yaml
"""

import json
import os
import subprocess
import time
import urllib.parse
import urllib.request

import yaml
from container import Container, end, expect, folder, loopback, row, send_reports, tail, wait_for_port
from docker_images import DOCKER_CAPABILITIES, context_of, quantity
from dockerfile import BASE_PATH, Image
from seccomp_profiles import runtime_default

EXAMPLE = os.path.join(os.environ["DEPLOY_EXAMPLES"], "compose")
#: The entry point and the user of the published images, and the program of this machine.
IMAGES = {
    "otel/opentelemetry-collector-contrib": ("/otelcol-contrib", 10001, "DEPLOY_COLLECTOR"),
    "grafana/pyroscope": ("/usr/bin/pyroscope", 10001, "DEPLOY_PYROSCOPE"),
}
KNOWN = {"build", "image", "command", "environment", "ports", "depends_on", "read_only", "tmpfs", "cap_drop", "security_opt", "mem_limit", "volumes"}
PORTS = {"pyroscope": 4040, "collector": 4318, "checkout": 8000}
QUERY = 'process_cpu:cpu:nanoseconds:cpu:nanoseconds{service_name="checkout"}'


def mounts_of(service, volumes):
    """Bind mounts of files beside the Compose file, and named volumes."""
    found = []
    for text in service.get("volumes", []):
        source, target, *mode = text.split(":")
        if source in volumes:
            found.append((volumes[source], target, True))
        else:
            path = os.path.normpath(os.path.join(EXAMPLE, source))
            expect(os.path.exists(path), f"no {path} for the volume {text}")
            found.append((path, target, mode != ["ro"]))
    return found


def settings_of(service, volumes, hosts):
    expect(set(service) <= KNOWN, f"keys that this suite does not know: {set(service) - KNOWN}")
    dropped, security = service.get("cap_drop", []), service.get("security_opt", [])
    expect(dropped in ([], ["ALL"]) and security in ([], ["no-new-privileges:true"]), f"not known here: {dropped}, {security}")
    capabilities = [] if dropped else DOCKER_CAPABILITIES
    return {
        "capabilities": capabilities, "seccomp": runtime_default([name.upper() for name in capabilities]), "no_new_privileges": bool(security),
        "read_only": service.get("read_only", False), "memory": quantity(service["mem_limit"].upper() + "i") if "mem_limit" in service else None,
        "tmpfs": {path: "noexec,nosuid,nodev,mode=1777" for path in service.get("tmpfs", [])}, "mounts": mounts_of(service, volumes), "hosts": hosts,
    }


def image_of(name, service):
    """The built image of a service; None for a published one."""
    if "build" not in service:
        return None
    context = os.path.normpath(os.path.join(EXAMPLE, service["build"]["context"]))
    dockerfile = os.path.normpath(os.path.join(context, service["build"]["dockerfile"]))
    expect(context.endswith("python-fastapi"), f"the context {context} has no package here")
    return Image(f"compose-{name}", dockerfile, context_of("python"))


def container_of(name, service, image, settings):
    env = {key: str(value) for key, value in service.get("environment", {}).items()}
    if image:
        return image.container(env=env, hostname=name, **settings)
    entry, user, variable = IMAGES[service["image"].split(":")[0]]
    root = folder(f"compose-{name}/root")
    program = [(os.environ[variable], entry, False)]
    settings["mounts"] = program + settings["mounts"]
    return Container(root, [entry, *service["command"]], env={"PATH": BASE_PATH, **env}, user=user, group=user, hostname=name, **settings)


def network():
    """A network with an interface as in a container: Pyroscope looks for the address of eth0."""
    loopback()
    subprocess.run(["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "host0"], check=True)
    subprocess.run(["ip", "address", "add", "10.77.0.2/24", "dev", "eth0"], check=True)
    for name in ("eth0", "host0"):
        subprocess.run(["ip", "link", "set", name, "up"], check=True)


def render():
    """The flame graph that Pyroscope has of the service, as text."""
    words = urllib.parse.urlencode({"query": QUERY, "from": "now-1h", "until": "now", "format": "json"})
    with urllib.request.urlopen(f"http://127.0.0.1:4040/pyroscope/render?{words}", timeout=30) as answer:
        return json.loads(answer.read())["flamebearer"]


def main(name):
    with open(os.path.join(EXAMPLE, name)) as file:
        compose = yaml.safe_load(file)
    services = compose["services"]
    images = {name: image_of(name, service) for name, service in services.items()}
    volumes = {name: folder(f"compose-volume-{name}") for name in compose["volumes"]}
    for path in volumes.values():
        os.chown(path, 10001, 10001)
    network()
    logs, running = folder("compose-logs"), {}
    try:
        while len(running) < len(services):
            [name, service] = next(it for it in services.items() if it[0] not in running and set(it[1].get("depends_on", [])) <= set(running))
            log = os.path.join(logs, name)
            container = container_of(name, service, images[name], settings_of(service, volumes, list(services)))
            running[name] = container.start(log)
            wait_for_port(PORTS[name], running[name], log)
        send_reports(4)
        end(running.pop("checkout"))
        until = time.monotonic() + 120
        while "render_report" not in (found := render())["names"]:
            expect(time.monotonic() < until, f"Pyroscope has no render_report: {found['names'][:20]}\n{tail(os.path.join(logs, 'collector'))}")
            time.sleep(1)
        return f"{found['numTicks'] / 1e9:.2f} s of CPU time of the service in Pyroscope, through the Collector"
    finally:
        for process in running.values():
            end(process)


if __name__ == "__main__":
    row("compose", main)
