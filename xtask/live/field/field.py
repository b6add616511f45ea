"""Shared by the cells: reference run and profiled run, comparison, profiles, and the row of the table.

A cell imports this module and `profiled` through `PYTHONPATH`, which `cargo xtask live field` sets to this directory.
"""

import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
#: Directories of the modules that programs import: that of the cell's script, for its applications, and this one.
MODULES = [os.path.dirname(os.path.abspath(sys.argv[0])), HERE]
sys.path.insert(0, os.path.join(HERE, "../../../bindings-python/tests"))

import profiled  # noqa: E402
from pprof_reader import read_profile  # noqa: E402

#: The function that uses CPU time in every program, in Python and in Node.js and Java.
WORK = ["field_work", "fieldWork"]

#: Rate of the variant in multiples of the default, 100 Hz. Cells state the numbers of samples at the default.
SCALE = int(os.environ.get("SPANPROF_SAMPLE_RATE", "100")) // 100

#: Lines on standard error of the profiled run alone: the cell's own reports, and spanprof's log lines with the
#: prefixes of Java's and Node.js's loggers.
OURS = re.compile(r"^report: |spanprof(?: governor)?: |SpanprofWarning: |^\(Use `node --trace-warnings|io\.spanprof\.HostLog")
#: The second line of a warning.
HINT = re.compile(r"(spanprof: [^\n]*)\nhint: [^\n]*")
#: Parts of a line that differ from run to run: identifiers, numbers.
VARYING = re.compile(r"spanprof-field-\w+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,}|0x[0-9a-f]+|\d+")

Ended = namedtuple("Ended", "code stdout stderr")


class CellFailure(Exception):
    """A cell that failed; its text becomes the row."""


class Skip(Exception):
    """A cell that cannot run on this machine; its text is the reason."""


def expect(condition, message):
    """Fails the cell unless the condition holds."""
    if not condition:
        raise CellFailure(message)


def folder():
    """A fresh directory; `cell` removes it."""
    made = tempfile.mkdtemp(prefix="spanprof-field-")
    _folders.append(made)
    return made


_folders = []


def environment(profiles=None, **more):
    """Environment of a run; without `profiles` that of the reference run."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(MODULES), PYTHONFAULTHANDLER="1", **more)
    env.pop(profiled.PROFILES, None)
    if profiles:
        env[profiled.PROFILES] = profiles
    return env


def run(words, profiles=None, limit=120, **more):
    """Runs a program to completion. Beyond its limit it is killed with its process group, and the cell fails."""
    process = subprocess.Popen(
        words, env=environment(profiles, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise CellFailure(f"hung: {' '.join(words)} did not end within {limit} s\n{stdout}{stderr}") from None
    return Ended(process.returncode, stdout, stderr)


def compared(words, limit=120, **more):
    """Runs a program without and with spanprof: output and exit code must be equal. Returns the profiled run and its profiles."""
    reference = run(words, None, limit, **more)
    profiles = folder()
    ours = run(words, profiles, limit, **more)
    expect_same(ours, reference)
    return ours, profiles


def expect_same(ours, reference):
    """Fails the cell unless both runs have equal exit codes and output, and standard error has no unknown line."""
    described = f"without spanprof:\n{reference}\nwith spanprof:\n{ours}"
    expect(ours.code == reference.code, f"ended with {ours.code}, expected {reference.code}\n{described}")
    expect(ours.stdout == reference.stdout, f"printed something else\n{described}")
    expect_no_other_lines(ours.stderr, reference.stderr)


def expect_no_other_lines(ours, reference):
    """Fails the cell if standard error has lines that neither the reference run has nor spanprof documents."""
    known = {VARYING.sub("N", line) for line in reference.splitlines()}
    new = [line for line in HINT.sub(r"\1", ours).splitlines() if not OURS.search(line) and VARYING.sub("N", line) not in known]
    expect(not new, f"{len(new)} new lines on standard error: {' / '.join(new[:3])}\nwithout:\n{reference}\nwith:\n{ours}")


def cpu_samples(profiles):
    """Number of samples, labels and function names of each stack of CPU time in all profiles."""
    for path in pathlib.Path(profiles).rglob("*.pb.gz"):
        # Profiles of wall time and of event loop blocks have other units.
        for sample in read_profile(path).samples:
            if "cpu" in sample.values:
                yield sample.count, sample.labels, sample.frames


def times(profiles):
    """The begin of each profile, in seconds since 1970."""
    for path in pathlib.Path(profiles).rglob("*.pb.gz"):
        yield read_profile(path).time_nanos / 1e9


def functions(profiles):
    """CPU samples per function name."""
    found = {}
    for count, _, stack in cpu_samples(profiles):
        for name in set(stack):
            found[name] = found.get(name, 0) + count
    return found


def expect_labels(profiles, key, expected, at_least):
    """Fails the cell unless the samples of each function have its value of the label; returns their number. `at_least` is that
    of each function at the default rate.

    A sample without any label is counted as wrong too, but for one of a hundred: the tick at the border of a scope.
    """
    right, at_least = dict.fromkeys(expected, 0), at_least * SCALE
    others = []
    for count, labels, stack in cpu_samples(profiles):
        for name in (name for name in expected if any(name in frame for frame in stack)):
            if labels.get(key) == expected[name]:
                right[name] += count
            else:
                others.append((name, labels.get(key), count))
    expect(min(right.values()) >= at_least, f"samples with the right {key}: {right}, expected {at_least} or more each; others: {others}")
    wrong, missing = [other for other in others if other[1]], sum(count for _, value, count in others if not value)
    expect(not wrong, f"samples with the {key} of another request: {wrong}")
    expect(missing * 100 <= sum(right.values()), f"{missing} samples without {key}, {right} with it")
    return sum(right.values())


def samples_of(profiles, name=None):
    """Samples with a function of this name in their stack, in all profiles; by default that of each language."""
    names = [name] if name else WORK
    return sum(count for function, count in functions(profiles).items() if any(part in function for part in names))


def expect_samples(profiles, at_least=1, name=None):
    """Fails the cell unless the profiles contain the function, with `at_least` samples at the default rate; returns their number."""
    count, at_least = samples_of(profiles, name), at_least * SCALE
    files = len(glob.glob(os.path.join(profiles, "**", "*.pb.gz"), recursive=True))
    expect(count >= at_least, f"{count} samples of {name or WORK[0]} in {files} profiles, expected {at_least} or more")
    return count


def expect_declined(words, mentions):
    """Runs a program that cannot load the native module: it runs as without spanprof, has no samples, and one warning, which
    mentions what to do. Returns how it ended."""
    ended, profiles = compared(words)
    lines = [line for line in ended.stderr.splitlines() if "SpanprofWarning" in line]
    expect(len(lines) == 1, f"{len(lines)} warnings, expected 1\n{ended.stderr}")
    expect(mentions in lines[0], f"the warning does not mention {mentions}\n{lines[0]}")
    expect(samples_of(profiles) == 0, "samples without the native module")
    return ended


def wait_until(condition, within, what):
    """Polls until the condition holds; fails the cell when it does not in time."""
    until = time.monotonic() + within
    while not condition():
        expect(time.monotonic() < until, f"{what} did not happen within {within} s")
        time.sleep(0.1)


class Server:
    """A started program in its own process group with output to a file. Terminated at the end of the `with` block."""

    def __init__(self, words, profiles=None, **more):
        self.log_path = os.path.join(folder(), "log")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                words, env=environment(profiles, **more), stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def log(self):
        """Its output so far."""
        with open(self.log_path, errors="replace") as log:
            return log.read()

    def end(self, number=signal.SIGTERM, within=30):
        """Sends a signal to the main process and returns its exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise CellFailure(f"hung: did not end within {within} s of signal {number}\n{self.log()}") from None


def children(pid):
    """Process ids of the children."""
    found = set()
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path) as file:
                found.update(map(int, file.read().split()))
        except OSError:
            pass
    return found


def burner(language):
    """Command of the program that uses CPU time and prints a result: `burner.py`, `burner.js` or `Burner.java`."""
    if language == "python":
        return [sys.executable, os.path.join(HERE, "burner.py")]
    if language == "node":
        return [os.environ["FIELD_NODE"], os.path.join(HERE, "burner.js")]
    return [os.environ["FIELD_JAVA"], "-XX:-CreateCoredumpOnCrash", "-cp", os.environ["FIELD_CLASSES"], "Burner"]


def opentelemetry_agent():
    """The path of OpenTelemetry's agent for Java."""
    return glob.glob(os.path.join(os.environ["FIELD_JAVA_LIBRARIES"], "opentelemetry-javaagent-*.jar"))[0]


def cell(main):
    """Runs the cell and prints its row: `row: passed …`, `row: skipped …` or `row: FAILED …`."""
    code = 0
    try:
        print(f"row: passed  {main(*sys.argv[1:])}")
    except Skip as reason:
        print(f"row: skipped {reason}")
    except CellFailure as reason:
        head, _, rest = str(reason).partition("\n")
        print(rest, file=sys.stderr)
        print(f"row: FAILED  {head}")
        code = 1
    finally:
        for made in _folders:
            shutil.rmtree(made, ignore_errors=True)
    sys.stdout.flush()
    os._exit(code)
