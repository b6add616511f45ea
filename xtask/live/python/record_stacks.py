"""Prints the fixture of one recorded stack: the words that a walk read, for the tests that replay it. The only argument is the
shape. Needs an extension with the feature `record-stacks`. The names of its frames must be those of the interpreter."""

import asyncio
import contextvars
import faulthandler
import os
import sys
import threading

from spanprof._spanprof import _recording as recording
from spanprof._spanprof import _testing as runtime

#: The id in the profiler's context variable.
CONTEXT_ID = 0x5EED
#: Microseconds between two signals; a shape stays on the stack until one of them is recorded.
INTERVAL_US = 500
#: A shape that is not recorded within this time ends the program with an error.
MAX_SECONDS = 100
#: Recursive calls of the shape `recursion`.
DEPTH = 30

variable = contextvars.ContextVar("spanprof.recording")
fixtures = []


def names_of(frame):
    """Function names of the interpreter's own stack, leaf first."""
    names = []
    while frame is not None:
        names.append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name)
        frame = frame.f_back
    return names


def finish(recorded, frame):
    """Keeps the fixture if its frames are those of `frame` and its callers."""
    fixture, names = recorded
    if names != names_of(frame):
        sys.exit(f"recorded {names}, the interpreter has {names_of(frame)}")
    fixtures.append(fixture)


def function():
    negate(Number())


def negate(number):
    # Below the eighth instruction the walk checks that the function has begun.
    -number


class Number:
    def __neg__(self):
        leaf()


def leaf():
    recording.request("handler", leaf.__code__)
    while (recorded := recording.take("function")) is None:
        pass
    finish(recorded, sys._getframe())


def generator():
    for _ in numbers():
        pass


def numbers():
    recording.request("handler", numbers.__code__)
    while (recorded := recording.take("generator")) is None:
        yield 1
    finish(recorded, sys._getframe())


def coroutine():
    # Their table has an array node as root.
    for number in range(40):
        contextvars.ContextVar(f"spanprof.recording.{number}").set(number)
    asyncio.run(handle())


async def handle():
    await query()


async def query():
    await asyncio.sleep(0)
    recording.request("handler", query.__code__)
    while (recorded := recording.take("coroutine")) is None:
        pass
    finish(recorded, sys._getframe())


def c_call():
    sorted([1], key=key)


def key(number):
    recording.request("handler", key.__code__)
    while (recorded := recording.take("c_call")) is None:
        pass
    finish(recorded, sys._getframe())
    return number


def recursion(depth=DEPTH):
    if depth:
        recursion(depth - 1)
        return
    recording.request("handler", recursion.__code__)
    while (recorded := recording.take("recursion")) is None:
        pass
    finish(recorded, sys._getframe())


def loop_entry():
    # A sample at the entry of the interpreter loop, which C code calls for each number.
    many = list(range(1000))
    recording.request("loop_entry", loop_entry.__code__)
    while (recorded := recording.take("loop_entry")) is None:
        sorted(many, key=lambda number: number)
    finish(recorded, sys._getframe())


def other_thread():
    readable, writable = os.pipe()
    thread = threading.Thread(target=wait, args=(readable,))
    thread.start()
    recording.request("other_thread", wait_for_byte.__code__)
    while (recorded := recording.take("other_thread")) is None:
        handle = dict(runtime.threads()).get(thread.native_id)
        if handle is not None:
            runtime.walk_other(thread.native_id, handle)
    finish(recorded, sys._current_frames()[thread.ident])
    os.write(writable, b"x")
    thread.join()


def wait(readable):
    variable.set(CONTEXT_ID)
    next(wait_for_byte(readable))


def wait_for_byte(readable):
    # The frame of a generator is not on the thread's data stack.
    yield os.read(readable, 1)


SHAPES = {
    shape.__name__: shape
    for shape in (function, generator, coroutine, c_call, recursion, loop_entry, other_thread)
}


def main():
    shape = SHAPES[sys.argv[1]]
    faulthandler.dump_traceback_later(MAX_SECONDS, exit=True)
    runtime.start()
    if runtime.use_context_variable(variable) != "context_variable":
        sys.exit("the context variable cannot be read")
    variable.set(CONTEXT_ID)
    if shape is not other_thread:
        runtime.sampler_start(INTERVAL_US, 100)
    shape()
    if shape is not other_thread:
        runtime.sampler_stop()
    print(fixtures[0], end="")


if __name__ == "__main__":
    main()
