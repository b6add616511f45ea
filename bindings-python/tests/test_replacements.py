"""What the profiler replaces in the standard library looks like the original, to the program and to its tools."""

from __future__ import annotations

PROGRAM = """
import asyncio, asyncio.locks, concurrent.futures.thread, copy, inspect, multiprocessing, multiprocessing.spawn, os, pickle, queue, signal
import socket, subprocess, sys, threading, types, typing

LAZY = getattr(types, "LazyImportType", None)  # Since 3.15: the first use of such a name replaces it by the module.

def attributes():
    found = {}
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name.partition(".")[0] in sys.stdlib_module_names and spec is not None:
            owners = [module, *(value for value in vars(module).values() if type(value) is type and value.__module__ == name)]
            found.update({(owner, key): value for owner in owners for key, value in list(vars(owner).items()) if type(value) is not LAZY})
    return found

def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error)

PICKLERS = [(pickler, protocol) for pickler in (pickle.dumps, pickle._dumps) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]

def pickled(value):
    return [outcome(lambda: pickle.loads(dumps(value, protocol)) is value) for dumps, protocol in PICKLERS]

KINDS = [inspect.isfunction, inspect.isbuiltin, inspect.isclass, inspect.iscoroutinefunction, inspect.isroutine, callable]

def look(value):
    names = {name: getattr(value, name, None) for name in ("__module__", "__name__", "__qualname__", "__doc__", "__self__")}
    return {
        **names,
        "repr": repr(value).partition(" at 0x")[0],
        "kinds": [kind(value) for kind in KINDS],
        "is_coroutine": asyncio.iscoroutinefunction(value),
        "signature": str(outcome(inspect.signature, value)),
        "copies": [outcome(lambda: copied(value) is value) for copied in (copy.copy, copy.deepcopy)],
        "typing": typing.get_args(typing.Union[int, value])[1:] == (value,) if inspect.isclass(value) else True,
        "pickled": pickled(value),
    }

if not hasattr(sys, "stdlib_module_names"):  # 3.9
    sys.stdlib_module_names = {"asyncio", "concurrent", "multiprocessing", "os", "posix", "queue", "signal", "socket", "subprocess",
                               "sys", "threading", "_thread", "gc", "logging", "time", "builtins", "contextvars", "atexit"}
before = attributes()
import spanprof
looks = {(owner, name): look(value) for (owner, name), value in before.items() if name in
         ("Lock", "RLock", "_CRLock", "__init__", "acquire", "_exit", "start", "_set_native_id", "submit", "get_preparation_data", "name")}
spanprof.start(profiles="all", threads=True, inherit_threads=True, destinations=[])
from spanprof import replacements

table = {(owner, name): (original, replacement) for owner, name, original, replacement in replacements.TABLE}
changed = {key for key, value in attributes().items() if key in before and value is not before[key]}
# What every program changes: a thread or a warning of the profiler.
unlisted = {(getattr(o, "__name__", o), n) for o, n in changed - set(table)} - {("threading", "_counter")}
assert not unlisted, unlisted
assert {name for _, name in table} >= {"_exit", "submit", "start", "_set_native_id", "get_preparation_data", "Lock"}, table
different = {}
for (owner, name), (original, replacement) in table.items():
    if vars(owner)[name] is not replacement:
        continue  # `threading.RLock` is a function that returns the replaced type.
    expected, found = looks[owner, name], look(replacement)
    different |= {(name, key): (expected[key], found[key]) for key in expected if expected[key] != found[key]}
    if inspect.isbuiltin(original) or inspect.isclass(original):  # A program may have kept it.
        if pickled(original) != expected["pickled"]:
            different[name, "pickled original"] = expected["pickled"], pickled(original)
assert not different, different
with_own_type = pickle.loads(pickle.dumps([len, "".join, os.getpid]))
assert with_own_type[0] is len and with_own_type[1]("ab") == "ab" and with_own_type[2] is os.getpid
"""


def test_every_replaced_object_of_the_standard_library_looks_like_the_original(run_target):
    run_target(PROGRAM)
