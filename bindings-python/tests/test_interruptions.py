"""An exception that a signal handler of the program raises inside a call of the profiler reaches the program unchanged.

A signal is raised at each line of Python that a call runs, one line per forked process or per call.
"""

from __future__ import annotations

import json

import pytest

INTERRUPT = r"""
import os, signal, sys
import spanprof
from spanprof import lifecycle, native

class Interruption({base}):
    pass

def handle(*arguments):
    raise Interruption("of a signal handler")

signal.signal(signal.SIGUSR1, handle)

def is_of_profiler(code):
    return "spanprof" in code.co_filename or "target.py" in code.co_filename or "abc" in code.co_filename

def interrupted(call, line, is_traced=is_of_profiler):
    'The fate of the exception of a handler that runs at this line of the call: "raised", "lost", or "no such line".'
    lines, where = 0, None
    def trace(frame, event, argument):
        nonlocal lines, where
        # `logging` itself handles every Exception; the interpreter drops those of importlib's weak reference callbacks.
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if "logging" in file or "importlib" in file and name in ("cb", "remove") or not is_traced(frame.f_code):
            return None
        if event == "line":
            lines += 1
            if lines == line:
                where = f"{{frame.f_code.co_filename}}:{{frame.f_lineno}}"
                sys.settrace(None)
                signal.raise_signal(signal.SIGUSR1)
                len("the handler runs at the latest here")
        return trace
    raised = None
    try:
        try:
            sys.settrace(trace)
            call()
        finally:
            sys.settrace(None)
    except Interruption as error:
        raised = error
    if where is None:
        return "no such line"
    if raised is None:
        return f"lost at {{where}}"
    assert raised.args == ("of a signal handler",)
    return "raised"
"""

START = (
    INTERRUPT
    + r"""
def in_child(line):
    def call():
        spanprof.start(service_name="x", destinations=[], profiles="all", config_file=None)
    outcome = interrupted(call, line)
    if outcome == "raised":
        assert not spanprof.is_running(), "running after an exception"
        assert spanprof.start(service_name="x", destinations=[], lock=True, threads=True), "does not start again"
        assert spanprof.stats()["runtime.python.degraded"] == "", spanprof.stats()["runtime.python.degraded"]
        spanprof.stop()
    return outcome

import json, multiprocessing.util, concurrent.futures, asyncio
counts, line = {{}}, int(sys.argv[1])
while "no such line" not in counts:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            outcome = in_child(line)
        except BaseException as error:
            outcome = f"line {{line}}: {{error!r}}"
        os.write(writer, outcome.encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    with open(reader) as stream:
        outcome = stream.read()
    os.waitpid(child, 0)
    counts[outcome] = counts.get(outcome, 0) + 1
    line += int(sys.argv[2])
print(json.dumps(counts))
"""
)

CALLS = (
    INTERRUPT
    + r"""
# An interrupted import of these would be a matter of the interpreter.
import collections.abc, concurrent.futures, inspect, io, logging, multiprocessing, pathlib, threading
logging.basicConfig(stream=io.StringIO())

class Text:
    def __str__(self):
        text = "te"
        text += "xt"
        return text

class Labels(collections.abc.Mapping):
    def __getitem__(self, key):
        return {{"a": 1}}[key]
    def __iter__(self):
        return iter(["a"])
    def __len__(self):
        return 1

class Path:
    def __fspath__(self):
        path = str(pathlib.Path("/tmp"))
        return path

def scope():
    with spanprof.tag_wrapper(Labels()), spanprof.tag_wrapper({{"text": Text()}}), spanprof.tag_wrapper(key=Text()):
        pass

def thread():
    thread = threading.Thread(target=int)
    try:
        thread.start()
    finally:
        if thread.ident is not None:
            thread.join()

def imported():
    # Its import has a hook.
    for name in ("multiprocessing.spawn", "concurrent.futures.thread"):
        sys.modules.pop(name, None)
    import multiprocessing.spawn, concurrent.futures.thread

def restart():
    spanprof.stop()
    spanprof.start(service_name="x", destinations=[], lock=True, threads=True, file_directory=Path())

calls = {{
    "stop and start": restart,
    "update": lambda: spanprof.update(sample_rate=50),
    "flush": lambda: spanprof.flush(1),
    "stats": spanprof.stats,
    "scopes": scope,
    "bind": lambda: spanprof.bind(int)(),
    "capture": lambda: spanprof.capture(int),
    "threads": thread,
    "imports": imported,
    "decorator": lambda: spanprof.tag_wrapper({{"a": "b"}})(int)(),
}}
spanprof.start(service_name="x", destinations=[], lock=True, threads=True, file_directory=Path())
total = 0
for name, call in calls.items():
    line = 1
    while True:
        outcome = interrupted(call, line)
        if outcome == "no such line":
            break
        assert outcome == "raised", (name, outcome)
        total += 1
        line += 1
        spanprof.start(service_name="x", destinations=[], lock=True, threads=True)
        assert spanprof.is_running()
print(total)
"""
)


@pytest.mark.parametrize(("base", "first"), [("BaseException", "1"), ("Exception", "3")])
def test_an_exception_of_a_signal_handler_during_start_reaches_the_program(run_target, base, first):
    counts = json.loads(run_target(START.format(base=base), first, "12", timeout=110).stdout)
    assert set(counts) == {"raised", "no such line"}, counts
    assert counts["raised"] > 5


@pytest.mark.parametrize("base", ["BaseException", "Exception"])
def test_an_exception_of_a_signal_handler_during_any_other_call_reaches_the_program(run_target, base):
    assert int(run_target(CALLS.format(base=base), timeout=110).stdout) > 20


def test_an_exception_of_a_signal_handler_in_the_fork_hook_reaches_the_child(run_target):
    target = run_target(
        INTERRUPT.format(base="Exception")
        + """
spanprof.start(service_name="x", destinations=[])
line, outcomes = 1, []
while not outcomes or outcomes[-1] == "raised":
    read, write = os.pipe()
    def fork():
        global child
        child = os.fork()
    parent = os.getpid()
    outcome = interrupted(fork, line, lambda code: code.co_filename.endswith("fork.py"))
    if os.getpid() != parent:
        os.write(write, outcome.encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(write)
    with open(read) as stream:
        outcomes.append(stream.read())
    os.waitpid(child, 0)
    line += 1
print(outcomes[-1], len(outcomes) > 5)
"""
    )
    assert target.stdout.split("\n")[0] == "no such line True"


def test_a_program_that_exits_in_a_signal_handler_exits_with_its_code(run_target):
    target = run_target(
        """
        import os, signal, sys, time
        import spanprof
        signal.signal(signal.SIGALRM, lambda *_: sys.exit(7))
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        while True:
            spanprof.start(service_name="x", destinations=[])
            spanprof.stop()
        """,
        expect=7,
    )
    assert "Exception ignored" not in target.stderr, target.stderr
