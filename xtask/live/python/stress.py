"""Twenty threads with known causes of crashes in profilers, sampled at 2 kHz. The test is that the process survives."""

import asyncio
import gc
import random
import sys
import threading
import time
import zlib

import spanprof
import suite


def compile_and_free(stop, seed):
    generator = random.Random(seed)
    while not stop.is_set():
        name = f"made_{generator.randrange(10**9)}"
        space = {}
        exec(compile(f"def {name}(n):\n    t = 0\n    for i in range(n):\n        t += i\n    return t", name, "exec"), space)
        space[name](2000)
        del space


def recurse(stop, _seed):
    def deeper(depth):
        return 0 if depth == 0 else 1 + deeper(depth - 1)

    while not stop.is_set():
        deeper(random.randrange(10, 800))


def generate(stop, _seed):
    def inner(count):
        for number in range(count):
            yield number * number

    def outer(count):
        yield from inner(count)
        yield sum(inner(count))

    while not stop.is_set():
        list(outer(200))
        half = outer(50)
        next(half)
        del half


def raise_and_catch(stop, _seed):
    def fail(depth):
        if depth == 0:
            raise ValueError("deep")
        try:
            fail(depth - 1)
        finally:
            depth += 1

    while not stop.is_set():
        try:
            fail(30)
        except ValueError as error:
            assert error.__traceback__ is not None


def churn_threads(stop, _seed):
    while not stop.is_set():
        threads = [threading.Thread(target=sum, args=(range(5000),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def label(stop, seed):
    number = 0
    while not stop.is_set():
        number += 1
        with spanprof.tag_wrapper({"worker": str(seed), "step": str(number % 50)}):
            sum(range(300))
            try:
                with spanprof.tag_wrapper({"inner": "yes"}):
                    raise KeyError
            except KeyError:
                pass


def collect(stop, _seed):
    while not stop.is_set():
        ring = []
        for _ in range(300):
            ring = [ring, {}]
            ring.append(ring)
        del ring
        gc.collect()
        time.sleep(0.002)


def compress(stop, _seed):
    data = random.randbytes(200_000) if hasattr(random, "randbytes") else bytes(range(256)) * 800
    while not stop.is_set():
        zlib.compress(data)


def interleave(stop, seed):
    async def task(number):
        with spanprof.tag_wrapper({"task": f"{seed}-{number % 20}"}):
            await asyncio.sleep(0)
            sum(range(200))
            await asyncio.sleep(0)

    async def many():
        await asyncio.gather(*(task(number) for number in range(100)))

    while not stop.is_set():
        asyncio.run(many())


WORK = [compile_and_free] * 4 + [recurse, generate, raise_and_catch, churn_threads, label, compress] * 2
WORK += [collect, interleave, interleave, label]


def main():
    clock, seconds = suite.arguments()
    suite.watch(seconds)
    assert len(WORK) == 20, len(WORK)
    suite.start(clock, 2000, wall=True)
    stop = threading.Event()
    broken = []

    def guarded(work, seed):
        try:
            work(stop, seed)
        except BaseException as error:
            broken.append((work.__name__, error))
            raise

    threads = [threading.Thread(target=guarded, args=(work, seed)) for seed, work in enumerate(WORK)]
    for thread in threads:
        thread.start()
    # The main thread reads the profiler's statistics.
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        spanprof.stats()
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    samples = spanprof.stats()["samples.cpu"]
    dropped = suite.counters("dropped.")
    spanprof.stop()
    print(f"{samples} CPU samples in {seconds} s; dropped: {dropped}")
    if broken:
        sys.exit(f"the profiled program failed: {broken}")
    if samples < 20 * seconds:
        sys.exit(f"only {samples} samples in {seconds} s of full load")


if __name__ == "__main__":
    main()
