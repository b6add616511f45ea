"""Work with known causes of crashes in profilers: each function computes a number from its argument, and always the same one.
Used by stress.py, in threads and in forked children."""

import asyncio
import concurrent.futures
import gc
import queue
import threading
import time
import zlib

import spanprof

try:
    import numpy
except ImportError:  # Debian's interpreters have none.
    numpy = None
try:
    import gevent
    import gevent.lock
except ImportError:
    gevent = None
try:
    import _interpreters as interpreters
except ImportError:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        interpreters = None

#: Held while an interpreter exists and during a fork: CPython 3.11 to 3.13 crash in a child of a process with interpreters.
ONE_INTERPRETER = threading.Lock()
#: From one byte to 4 MiB: small objects of pymalloc, its limit of 512 bytes, the RAW domain, and mappings of their own.
SIZES = (1, 16, 60, 200, 511, 512, 513, 4096, 70_000, 600_000, 4 << 20)


def compile_and_free(number):
    name = f"made_{number}"
    space = {}
    exec(compile(f"def {name}(n):\n    t = {number}\n    for i in range(n):\n        t += i\n    return t", name, "exec"), space)
    return space[name](2000)


def recurse(number):
    def deeper(depth):
        return 0 if depth == 0 else 1 + deeper(depth - 1)

    return deeper(10 + 90 * number)


def generate(number):
    def inner(count):
        for value in range(count):
            yield value * value

    def outer(count):
        yield from inner(count)
        yield sum(inner(count))

    half = outer(50)
    first = next(half)
    del half
    return first + sum(outer(200 + number))


def raise_and_catch(number):
    def fail(depth):
        if depth == 0:
            raise ValueError("deep")
        try:
            fail(depth - 1)
        finally:
            depth += 1

    try:
        fail(20 + number)
    except ValueError as error:
        trace, length = error.__traceback__, 0
        while trace is not None:
            trace, length = trace.tb_next, length + 1
        return length
    return -1


def churn_threads(number):
    sums = []

    def one(count):
        sums.append(sum(bytes(count)) + count)

    threads = [threading.Thread(target=one, args=(5000 + number + index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(sums)


def label(number):
    total = 0
    for step in range(30):
        with spanprof.tag_wrapper({"worker": str(number), "step": str(step)}):
            total += sum(range(300))
            try:
                with spanprof.tag_wrapper({"inner": "yes"}):
                    raise KeyError
            except KeyError:
                total += 1
    return total


def collect(number):
    ring = []
    for _ in range(300 + number):
        ring = [ring, {}]
        ring.append(ring)
    count = len(ring)
    del ring
    # Of one generation: a full collection visits the objects of all other functions too.
    gc.collect(number % 2)
    return count


def compress(number):
    data = bytes(range(256)) * (100 + number)
    return zlib.crc32(zlib.decompress(zlib.compress(data)))


def interleave(number):
    lock = None
    total = 0

    async def task(index):
        nonlocal total
        with spanprof.tag_wrapper({"task": f"{number}-{index % 20}"}):
            await asyncio.sleep(0)
            async with lock:
                before = total
                await asyncio.sleep(0)
                total = before + sum(range(200))
            await asyncio.sleep(0)

    async def many():
        nonlocal lock
        lock = asyncio.Lock()
        await asyncio.gather(*(task(index) for index in range(40)))

    asyncio.run(many())
    return total


def allocate(number):
    kept, total = [], 0
    for turn in range(20):
        for size in SIZES[: 9 if turn % 10 else 11]:
            block = bytearray(size + number)
            block[-1] = turn + 1
            total += len(block) + block[-1]
            if turn % 3 == 0 and size < 100_000:
                kept.append(block)
    for block in kept[::2]:
        block.extend(b"x" * 300)
    del kept[::3]
    total += sum(map(len, kept))
    growing, table = [], {}
    for value in range(3000):
        growing.append(None)
        table[value] = (value,)
    text = "".join(str(value) for value in range(500))
    return total + len(growing) + sum(value for (value,) in table.values()) + len(text)


def arrays(number):
    if numpy is None:
        return 0
    total = 0
    for size in (1, 50, 3000, 200_000):
        array = numpy.arange(size + number, dtype=numpy.int64)
        total += int((array * 2 + 1).sum())
        array.resize(array.size + 100, refcheck=False)
        total += int(array.sum()) + array.size
    return total


def contend(number):
    lock, again, slots = threading.Lock(), threading.RLock(), threading.BoundedSemaphore(2)
    changed = threading.Condition()
    handed = queue.Queue(4)
    counts = {"lock": 0, "again": 0, "slots": 0, "handed": 0}

    def work(index):
        for turn in range(10):
            with lock:
                before = counts["lock"]
                time.sleep(0)
                counts["lock"] = before + 1
            with again, again:
                before = counts["again"]
                time.sleep(0.0001 if turn == index else 0)
                counts["again"] = before + 1
            with slots, lock:
                counts["slots"] += 1
            if lock.acquire(timeout=0.0001):
                lock.release()
            handed.put(index)
            with changed:
                counts["handed"] += 1
                changed.notify_all()

    def take():
        for _ in range(40):
            handed.get()
        with changed:
            changed.wait_for(lambda: counts["handed"] == 40)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)] + [threading.Thread(target=take)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts.values()) + number


def pool(number):
    with concurrent.futures.ThreadPoolExecutor(3) as executor:
        return sum(executor.map(recurse, range(number, number + 5)))


def greenlets(number):
    if gevent is None:
        return 0
    guard = gevent.lock.BoundedSemaphore(1)
    total = 0

    def one(index):
        nonlocal total
        with spanprof.tag_wrapper({"greenlet": str(index)}), guard:
            before = total
            gevent.sleep(0)
            total = before + len(bytearray(700 * index))

    gevent.joinall([gevent.spawn(one, index) for index in range(10 + number)])
    return total


def interpret(number):
    """Creates and destroys an interpreter; from 3.12 on it has a GIL of its own."""
    if interpreters is None:
        return 0
    with ONE_INTERPRETER:
        interpreter = interpreters.create()
        interpreters.run_string(interpreter, f"x = [bytes(n % 3000) for n in range({1000 + number})]; assert len(x) > 1; del x")
        interpreters.destroy(interpreter)
    return number


#: Functions of the threads of the stress program.
ALL = [
    compile_and_free, compile_and_free, recurse, generate, raise_and_catch, churn_threads, label, collect, compress, interleave,
    interleave, allocate, allocate, allocate, arrays, contend, contend, pool, greenlets,
]  # fmt: skip
#: Those that a forked child of a program with threads may run: without imports and threads.
IN_CHILD = [recurse, generate, raise_and_catch, label, allocate, collect]
