"""The images of examples/deploy/docker and the manifests of examples/deploy/kubernetes: a service of one language under load, with the user, the
seccomp filter, the root and the memory limit that the files state.

    docker_images.py python|node|node-alpine|java|rust
"""

import json
import os
import shutil
import signal
import subprocess
import time

import receiver
import yaml
from container import clock, copy_packages, end, expect, folder, get, loopback, row, send_reports, tail, wait_for_port
from dockerfile import Image
from seccomp_profiles import runtime_default

EXAMPLES = os.environ["DEPLOY_EXAMPLES"]
PROGRAMS = os.path.dirname(EXAMPLES)
HERE = os.path.dirname(os.path.abspath(__file__))
#: Of Docker, for a container without --cap-add.
DOCKER_CAPABILITIES = ("chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw sys_chroot mknod audit_write "
                       "setfcap").split()
#: A function of the program's work, and the files of its context.
WORK = {"python": "render_report", "node": "renderReport", "java": "renderReport", "rust": "render_report"}
PACKAGE = {"python": "*x86_64.whl", "node": "*.tgz", "java": "*[0-9].jar"}
SERVED = {"python": "python-fastapi", "node": "node-express", "rust": "rust-axum"}
#: The clone: the second context of the image for Rust.
CLONE = os.path.dirname(PROGRAMS)


def context_of(language, on_alpine):
    """The directory of the program with the package beside it."""
    context = folder(f"docker-{language}/context")
    if language == "java":
        home = os.environ["DEPLOY_JAVA_HOME"]
        classes = folder("docker-java/classes")
        subprocess.run([f"{home}/bin/javac", "-d", classes, f"{HERE}/functions/Shop.java"], check=True)
        subprocess.run([f"{home}/bin/jar", "--create", f"--file={context}/app.jar", "--main-class=Shop", "-C", classes, "."], check=True)
    else:
        shutil.copytree(os.path.join(PROGRAMS, SERVED[language]), context, dirs_exist_ok=True)
    if language == "rust":
        # The versions that the registry's cache on this machine has.
        shutil.copy(os.path.join(CLONE, "Cargo.lock"), context)
        return context
    if on_alpine:
        copy_packages("*.tgz", context, without="linux-x64-[0-9]|arm64")
    else:
        copy_packages(PACKAGE[language], context)
    return context


class Run:
    """One run of a container under load: its statistics, and what the receiver has."""

    def __init__(self, name, container, language, received, ends_with=signal.SIGTERM):
        self.log = os.path.join(folder(f"docker-{language}/{name}"), "log")
        for path in received.files():
            os.remove(path)
        process = container.start(self.log)
        try:
            wait_for_port(8000, process, self.log)
            expect(get("/health"), "no answer at /health")
            send_reports(4)
            self.clock = clock(process)
            self.stats = json.loads(get("/profiler")) if language != "java" else None
            if ends_with == signal.SIGKILL:
                # The heap of the last second is in its file.
                time.sleep(2)
        finally:
            self.code = end(process, ends_with)
        self.cpu = received.rows("cpu")

    def expect_work(self, language):
        in_work = receiver.below(self.cpu, WORK[language])
        expect(in_work > 0, f"no CPU time in {WORK[language]}\n{tail(self.log)}")
        return in_work

    def expect_clock(self, expected):
        expect(self.clock == expected, f"{self.clock} is the clock, expected {expected}\n{tail(self.log)}")


def manifest(*patches):
    """The pod of deployment.yaml after strategic merge patches: maps are merged, containers by name, other lists replaced."""
    with open(os.path.join(EXAMPLES, "kubernetes/deployment.yaml")) as file:
        merged = yaml.safe_load(file)
    for patch in patches:
        with open(os.path.join(EXAMPLES, "kubernetes", patch)) as file:
            merged = merge(merged, yaml.safe_load(file))
    return merged["spec"]["template"]["spec"]


def merge(base, patch):
    if isinstance(base, dict) and isinstance(patch, dict):
        return {**base, **{key: merge(base[key], value) if key in base else value for key, value in patch.items()}}
    if isinstance(base, list) and isinstance(patch, list) and all(isinstance(it, dict) and "name" in it for it in base + patch):
        named = {it["name"]: it for it in base}
        for it in patch:
            named[it["name"]] = merge(named[it["name"]], it) if it["name"] in named else it
        return list(named.values())
    return patch


#: Values of the downward API.
FIELDS = {"metadata.name": "checkout-5d8f-x1", "metadata.namespace": "shop", "spec.nodeName": "node-1"}
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def quantity(text):
    return int(text[:-2]) * UNITS[text[-2:]]


def pod(image, spec, volumes):
    """The container of a pod as the kubelet and containerd start it. `volumes`: a directory of each emptyDir."""
    [container] = spec["containers"]
    security = {**spec["securityContext"], **container["securityContext"]}
    expect(not (security["runAsNonRoot"] and security["runAsUser"] == 0), "runAsNonRoot refuses the user 0")
    env = {}
    for variable in container["env"]:
        value = variable.get("value")
        if value is None:
            value = FIELDS[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        for name, known in env.items():
            value = value.replace(f"$({name})", known)
        env[variable["name"]] = value
    dropped = security["capabilities"]["drop"]
    expect(dropped == ["ALL"], f"dropped capabilities {dropped}")
    added = security["capabilities"].get("add", [])
    profile = security["seccompProfile"]
    expect(profile == {"type": "RuntimeDefault"}, f"seccomp profile {profile}")
    expect(all(volume.keys() == {"name", "emptyDir"} for volume in spec["volumes"]), "only emptyDir volumes are known here")
    for name, path in volumes.items():
        # fsGroup: the volume belongs to the group, which may write.
        os.chown(path, 0, security["fsGroup"])
        os.chmod(path, 0o2775)
    return image.container(
        env=env, user=security["runAsUser"], group=security["runAsGroup"], groups=[security["fsGroup"]],
        capabilities=[name.lower() for name in added], seccomp=runtime_default(added), read_only=security["readOnlyRootFilesystem"],
        no_new_privileges=not security["allowPrivilegeEscalation"], memory=quantity(container["resources"]["limits"]["memory"]),
        mounts=[(volumes[it["name"]], it["mountPath"], True) for it in container["volumeMounts"]], hostname=FIELDS["metadata.name"],
    )


def volumes_of(spec, language):
    return {volume["name"]: folder(f"docker-{language}/volume-{volume['name']}") for volume in spec["volumes"]}


def main(word):
    language, _, on_alpine = word.partition("-")
    dockerfile = os.path.join(EXAMPLES, f"docker/{language}.Dockerfile")
    arguments = {"BASE": f"{language}:24-alpine"} if on_alpine else {}
    image = Image(f"docker-{language}", dockerfile, context_of(language, on_alpine), contexts={"spanprof": CLONE}, arguments=arguments)
    filter_of_docker = runtime_default(DOCKER_CAPABILITIES)
    loopback()
    received = receiver.Receiver(folder(f"docker-{language}/received"))
    seconds = []

    run = Run("docker", image.container(capabilities=DOCKER_CAPABILITIES, seccomp=filter_of_docker), language, received)
    seconds.append(run.expect_work(language))
    run.expect_clock("thread_timer")
    # As PID 1 with `docker run --read-only --tmpfs /tmp`.
    settings = {"read_only": True, "tmpfs": {"/tmp": "noexec,nosuid,nodev,size=64m,mode=1777"}}
    run = Run("read-only", image.container(capabilities=DOCKER_CAPABILITIES, seccomp=filter_of_docker, **settings), language, received)
    seconds.append(run.expect_work(language))

    spec = manifest()
    volumes = volumes_of(spec, language)
    run = Run("kubernetes", pod(image, spec, volumes), language, received)
    seconds.append(run.expect_work(language))
    run.expect_clock("thread_timer")
    limit = quantity(spec["containers"][0]["resources"]["limits"]["memory"])
    if run.stats:
        expect(run.stats["memory.limit_bytes"] == limit, f"memory limit {run.stats['memory.limit_bytes']}, expected {limit}")
    for name, value in (("k8s.pod.name", "metadata.name"), ("k8s.namespace.name", "metadata.namespace"), ("k8s.node.name", "spec.nodeName")):
        labeled = receiver.rows(received.files(), "cpu", "--label", f"{name}={FIELDS[value]}", "--service", "checkout")
        expect(labeled[None] > 0, f"no profile has {name}={FIELDS[value]}")

    Run("killed", pod(image, spec, volumes), language, received, signal.SIGKILL)
    words = [os.environ["DEPLOY_SPANPROF"], "heap", "--last-crash", volumes["profiler"]]
    heap = subprocess.run(words, capture_output=True, text=True)
    expect(heap.returncode == 0 and "inuse_space" in heap.stdout, f"after SIGKILL, {words}: {heap.stdout}{heap.stderr}")

    perf = manifest("perf.yaml")
    run = Run("perf", pod(image, perf, volumes_of(perf, language)), language, received)
    seconds.append(run.expect_work(language))
    run.expect_clock("thread_timer" if on_alpine else "perf")
    # What perf.yaml says: a capability that is added for another user has no effect.
    perf["securityContext"].update({"runAsNonRoot": True, "runAsUser": 65532})
    run = Run("perf-non-root", pod(image, perf, volumes_of(perf, language)), language, received)
    run.expect_work(language)
    if paranoid() >= 2:
        run.expect_clock("thread_timer")
    return f"CPU time of the work in each run: {', '.join(f'{it:.2f} s' for it in seconds)}"


def paranoid():
    with open("/proc/sys/kernel/perf_event_paranoid") as file:
        return int(file.read())


if __name__ == "__main__":
    row("docker and kubernetes", main)
