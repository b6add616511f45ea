"""Builds the image of a Dockerfile on this machine's root, or that of Alpine, instead of its base image: each instruction is carried out in
the container.

Supported are the instructions that the examples use; others fail.
"""

import glob
import json
import os
import re
import shlex
import shutil
import sys

from container import Container, expect, folder

#: What builds on another root take from this machine: its network and package registries.
NETWORK = ("/etc/resolv.conf", "/etc/ssl/certs", os.path.expanduser("~/.npmrc"))
#: Where the base images of the examples have their runtimes.
BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Image:
    """The files and the configuration of a built image. `bases`: a function for each base image besides the runtimes, which writes its
    files. `contexts`: the directories of `docker build --build-context`, `arguments` those of `--build-arg`."""

    def __init__(self, name, dockerfile, context, bases=None, contexts=None, arguments=None):
        self.name, self.context, self.bases, self.stages = name, context, bases or {}, dict(contexts or {})
        self.build_arguments, self.arguments = arguments or {}, {}
        with open(dockerfile) as file:
            text = re.sub(r"^#.*\n", "", file.read(), flags=re.MULTILINE).replace("\\\n", " ")
        for line in text.splitlines():
            if line.strip():
                instruction, _, words = line.strip().partition(" ")
                getattr(self, f"do_{instruction.lower()}")(words.strip())

    def run(self, command, env=None, mounts=()):
        """Carries out a command in the image, as root and with this machine's network and package registries."""
        variables = {**os.environ, **self.env, **(env or {}), "HOME": "/root"}
        # Of the build of this repository.
        variables.pop("CARGO_TARGET_DIR", None)
        of_machine = NETWORK if self.base != "/" else ()
        mounts = [*mounts, *((path, path, False) for path in of_machine if os.path.exists(path))]
        container = Container(self.root, command, base=self.base, env=variables, cwd=self.cwd, changes_image=True, mounts=mounts)
        code = container.run(self.log, 600)
        with open(self.log) as file:
            expect(code == 0, f"{self.name}: {command} ended with {code}\n{file.read()[-4000:]}")

    def do_arg(self, words):
        name, _, default = words.partition("=")
        if default or name in self.build_arguments:
            self.arguments[name] = self.build_arguments.get(name, default)

    def expanded(self, words):
        return re.sub(r"\$\{(\w+)\}", lambda name: self.arguments[name[1]], words)

    def do_from(self, words):
        reference, _, stage = self.expanded(words).partition(" AS ")
        base = reference.split(":")[0].split("/")[-1]
        self.base = os.environ["DEPLOY_ALPINE"] if "alpine" in reference else "/"
        self.root = folder(f"{self.name}/image-{len(self.stages)}")
        self.stages[stage or "last"] = self.root
        self.log = f"{self.root}.log"
        self.env, self.cwd, self.user, self.group, self.command = {"PATH": BASE_PATH}, "/", 0, 0, []
        if base == "python":
            # As in the official image: the interpreter and its packages are below /usr/local.
            self.run([os.path.realpath(sys.executable), "-m", "venv", "/usr/local"])
        elif base == "node" and self.base != "/":
            self.link("/opt/node/bin/node", "node")
            self.link("/opt/node/lib/node_modules/npm/bin/npm-cli.js", "npm")
        elif base == "node":
            self.link(os.environ["DEPLOY_NODE"], "node")
        elif base == "eclipse-temurin":
            self.link(f"{os.environ['DEPLOY_JAVA_HOME']}/bin/java", "java")
        elif base == "rust":
            for name in ("cargo", "rustc"):
                self.link(shutil.which(name), name)
        elif base in self.bases:
            self.bases[base](self)
        else:
            expect(base in ("busybox", "debian"), f"no base image {reference} on this machine")

    def link(self, program, name):
        os.makedirs(f"{self.root}/usr/local/bin", exist_ok=True)
        os.symlink(program, f"{self.root}/usr/local/bin/{name}")

    def do_workdir(self, path):
        self.cwd = os.path.join(self.cwd, path)
        os.makedirs(self.root + self.cwd, exist_ok=True)

    def do_copy(self, words):
        *sources, target = self.expanded(words).split()
        context = self.context
        if sources[0].startswith("--from="):
            context = self.stages[sources.pop(0).partition("=")[2]]
        target = self.root + os.path.join(self.cwd, target)
        for source in sources:
            found = glob.glob(os.path.join(context, source.lstrip("/")))
            expect(found, f"COPY: no {source} in {context}")
            for path in found:
                if os.path.isdir(path):
                    # The content of the directory, as in Docker.
                    shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True)
                    continue
                into = os.path.join(target, os.path.basename(path)) if target.endswith(("/", "/.")) else target
                os.makedirs(os.path.dirname(into), exist_ok=True)
                shutil.copy(path, into)

    def do_run(self, words):
        caches = []
        while words.startswith("--mount=type=cache,target="):
            mount, _, words = words.partition(" ")
            target = mount.partition("target=")[2]
            caches.append((self.cache(target), target, True))
            words = words.lstrip()
        self.run(["/bin/sh", "-c", words], mounts=caches)

    def cache(self, target):
        """A directory that outlives the image, as BuildKit's for a target."""
        path = f"{os.environ['DEPLOY_SCRATCH']}-caches/{self.name}{target}"
        os.makedirs(path, exist_ok=True)
        return path

    def do_env(self, words):
        self.env.update(word.split("=", 1) for word in shlex.split(words))

    def do_user(self, words):
        user, group = words.split(":")
        self.user, self.group = int(user), int(group)

    def do_expose(self, words):
        self.port = int(words)

    def do_cmd(self, words):
        self.command = json.loads(words)

    def container(self, **settings):
        """A container of the image, with the settings of the image where there are no others."""
        env = {**self.env, **settings.pop("env", {})}
        host = env["OTEL_EXPORTER_OTLP_ENDPOINT"].split("//")[1].split(":")[0]
        given = {"cwd": self.cwd, "user": self.user, "group": self.group, "hosts": [host], **settings}
        return Container(self.root, given.pop("command", self.command), base=self.base, env=env, **given)
