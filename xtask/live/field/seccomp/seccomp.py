"""A program under a seccomp filter: it is not killed, its results are those without spanprof, and either samples arrive or one line
states the reason.

    seccomp.py python|node|java

Filters that kill at one call of the profiler or refuse it; systemd's `@system-service`, Docker's default profile.
"""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import field

CALLS = ["perf_event_open", "memfd_create", "timer_create", "process_vm_readv"]
#: The module with the default profile of Docker, read from Go's module cache.
DOCKER = "github.com/moby/profiles/seccomp@v0.2.4"
#: The line with the reason for missing samples.
REASON = re.compile("not profiled|no CPU samples")
#: Concurrent programs.
PARALLEL = 2


def denied(action, names):
    """Rules that deny some calls."""
    return {"default": "allow", "calls": dict.fromkeys(names, action)}


def systemd():
    """`SystemCallFilter=@system-service` as the systemd of this machine expands it; it kills by default."""
    if not shutil.which("systemd-analyze"):
        return None
    text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True, text=True, check=True).stdout
    sets, current = {}, None
    for line in text.splitlines():
        if re.match(r"@[\w-]+$", line):
            current = sets.setdefault(line, [])
        elif current is not None and line.startswith("    ") and not line.lstrip().startswith("#"):
            current.append(line.strip())

    def members(name):
        return {call for word in sets[name] for call in (members(word) if word.startswith("@") else [word])}

    return {"default": "kill", "calls": dict.fromkeys(sorted(members("@system-service")), "allow")}


def docker(capabilities=()):
    """Docker's default profile for a container with these capabilities on this architecture."""
    if not shutil.which("go"):
        return None
    answer = subprocess.run(["go", "mod", "download", "-json", DOCKER], capture_output=True, text=True, cwd="/", check=False)
    directory = json.loads(answer.stdout or "{}").get("Dir")
    if not directory:
        return None
    with open(os.path.join(directory, "default.json")) as file:
        profile = json.load(file)
    calls = {}
    for rule in profile["syscalls"]:
        includes = rule.get("includes") or {}
        is_capable = not includes.get("caps") or set(includes["caps"]) & set(capabilities)
        is_capable = is_capable and not set((rule.get("excludes") or {}).get("caps", [])) & set(capabilities)
        if not is_capable or "amd64" not in includes.get("arches", ["amd64"]):
            continue
        # Conditions on arguments (namespaces, AF_VSOCK, personalities) affect no program of this suite and count as met.
        action = "allow" if rule["action"] == "SCMP_ACT_ALLOW" else rule.get("errnoRet", errno.EPERM)
        calls.update({name: action for name in rule["names"] if calls.get(name) != "allow"})
    return {"default": profile.get("defaultErrnoRet", errno.EPERM), "calls": calls}


def filters():
    """Rules by name; None where this machine has no such definition."""
    found = {}
    for action, value in (("kill", "kill"), ("EPERM", errno.EPERM)):
        found.update({f"{action} {call}": denied(value, [call]) for call in CALLS})
        found[f"{action} all four"] = denied(value, CALLS)
    return {**found, "systemd @system-service": systemd(), "Docker default": docker()}


def one(language, name, rules):
    """Samples under one filter, or the log line with the reason for none."""
    path = os.path.join(field.folder(), "rules.json")
    with open(path, "w") as file:
        json.dump(rules, file)
    words = [sys.executable, os.path.join(field.HERE, "seccomp/filtered.py"), path, *field.burner(language)]
    try:
        ours, profiles = field.compared(words)
    except field.CellFailure as failure:
        raise field.CellFailure(f"{name}: {failure}") from failure
    count = field.samples_of(profiles)
    lines = [line for line in ours.stderr.splitlines() if REASON.search(line)]
    if count == 0:
        field.expect(len(lines) == 1, f"{name}: no samples, and {len(lines)} lines about it, expected 1\n{ours.stderr}")
        return f"{name}: none, `{lines[0]}`"
    return f"{name}: {count}"


def main(language):
    rules = filters()
    missing = [name for name, rule in rules.items() if rule is None]
    present = {name: rule for name, rule in rules.items() if rule is not None}
    lines, failures = [], []

    def attempt(item):
        try:
            lines.append(one(language, *item))
        except field.CellFailure as failure:
            failures.append(str(failure))

    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(attempt, present.items()))
    print("\n".join(lines))
    if failures:
        heads = "; ".join(failure.partition("\n")[0] for failure in failures)
        raise field.CellFailure("\n".join([f"{len(failures)} of {len(present)} filters: {heads}", *failures]))
    silent = [line for line in lines if ": none" in line]
    left_out = f", no definition here of {' and '.join(missing)}" if missing else ""
    return f"{len(lines)} filters, 0 deaths, samples under {len(lines) - len(silent)}{left_out}"


if __name__ == "__main__":
    field.cell(main)
