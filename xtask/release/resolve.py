"""Resolves the packages of a release as clients of its users do: pip and uv for each platform from a directory of wheels, npm from a
registry on the loopback.

    resolve.py DIRECTORY VERSION NPM
"""

import base64
import hashlib
import http.server
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import threading

directory, version, npm = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]
#: Platforms of pip; the end of the name of the wheel it has to choose.
WHEELS = {
    "manylinux2014_x86_64": "manylinux_2_17_x86_64.whl",
    "manylinux_2_17_aarch64": "manylinux_2_17_aarch64.whl",
    "musllinux_1_2_x86_64": "musllinux_1_2_x86_64.whl",
    "musllinux_1_2_aarch64": "musllinux_1_2_aarch64.whl",
    "macosx_14_0_arm64": "py3-none-any.whl",
    "win_amd64": "py3-none-any.whl",
}
#: Operating system, processor and C library of npm; the packages beside `spanprof`.
MODULES = {
    ("linux", "x64", "glibc"): ["spanprof-linux-x64"],
    ("linux", "arm64", "glibc"): ["spanprof-linux-arm64"],
    ("linux", "x64", "musl"): ["spanprof-linux-x64-musl"],
    ("linux", "arm64", "musl"): ["spanprof-linux-arm64-musl"],
    ("darwin", "arm64", None): [],
}


def run(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"`{' '.join(map(str, words))}` ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(client, expected, actual):
    if expected != actual:
        sys.exit(f"{client}: expected {expected}, got {actual}")
    print(f"{client}: {actual}")


def check_pip(scratch):
    for platform, expected in WHEELS.items():
        into = scratch / platform
        run(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps",
            "--find-links", directory, "--only-binary", ":all:", "--python-version", "3.13", "--platform", platform,
            "--dest", into, "spanprof")  # fmt: skip
        [wheel] = into.iterdir()
        expect(f"pip download --platform {platform}", expected, wheel.name[-len(expected) :])


def check_uv(scratch):
    """Its lock has a wheel for each platform that the project requires."""
    environments = [f"sys_platform == 'linux' and platform_machine == '{machine}'" for machine in ("x86_64", "aarch64")]
    (scratch / "pyproject.toml").write_text(
        f"""[project]
name = "service"
version = "1"
requires-python = ">=3.9"
dependencies = ["spanprof=={version}"]
[tool.uv]
required-environments = {json.dumps(environments)}
no-index = true
find-links = [{json.dumps(str(directory))}]
"""
    )
    python = pathlib.Path(sys.executable)
    run(python.with_name("uv"), "lock", "--quiet", "--offline", "--python", python, cwd=scratch)
    locked = re.findall(r"spanprof-[^\"/]*\.whl", (scratch / "uv.lock").read_text())
    for end in sorted(set(WHEELS.values())):
        expect("uv lock", end, next((end for name in locked if name.endswith(end)), locked))


class Registry(http.server.BaseHTTPRequestHandler):
    """The packages of the directory, in the protocol of npm's registry."""

    manifests: dict = {}

    def do_GET(self):  # noqa: N802
        name = self.path.lstrip("/")
        body, status = b"{}", 404
        if name in self.manifests:
            body, status = json.dumps(self.document(name)).encode(), 200
        elif (directory / name).is_file():
            body, status = (directory / name).read_bytes(), 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def document(self, name):
        file = f"{name}-{version}.tgz"
        digest = base64.b64encode(hashlib.sha512((directory / file).read_bytes()).digest()).decode()
        address = f"http://127.0.0.1:{self.server.server_address[1]}/{file}"
        manifest = {**self.manifests[name], "dist": {"tarball": address, "integrity": f"sha512-{digest}"}}
        return {"name": name, "dist-tags": {"latest": version}, "versions": {version: manifest}}

    def log_message(self, *_):
        pass


def check_npm(scratch):
    for package in directory.glob("spanprof-*.tgz"):
        with tarfile.open(package) as archive:
            manifest = json.load(archive.extractfile("package/package.json"))
        Registry.manifests[manifest["name"]] = manifest
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for (system, processor, libc), expected in MODULES.items():
        flags = [f"--os={system}", f"--cpu={processor}", *([f"--libc={libc}"] if libc else [])]
        into = scratch / "-".join(flags)
        into.mkdir()
        (into / "package.json").write_text('{"private": true}')
        run(npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", *flags,
            "--registry", f"http://127.0.0.1:{server.server_address[1]}", "--cache", scratch / "cache", "spanprof", cwd=into)  # fmt: skip
        installed = sorted(path.name for path in (into / "node_modules").glob("spanprof*"))
        expect(f"npm install {' '.join(flags)}", ["spanprof", *expected], installed)
    server.shutdown()


for check in (check_pip, check_uv, check_npm):
    with tempfile.TemporaryDirectory() as scratch:
        check(pathlib.Path(scratch))
