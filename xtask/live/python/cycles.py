"""Starts and stops from four threads at random. Memory, descriptors and threads must return to their initial numbers."""

import logging
import random
import sys
import threading
import time

import spanprof
import suite

GROWTH_BYTES = 2_000_000


def cycle(clock, folder, count):
    generator = random.Random(count)
    for _ in range(count):
        spanprof.start(
            service_name="live",
            clock=clock,
            sample_rate=1000,
            destinations=[{"type": "file", "directory": folder, "keep": 10}],
        )
        sum(range(generator.randrange(20_000)))
        spanprof.stop()


def run(clock, folder, cycles):
    threads = [threading.Thread(target=cycle, args=(clock, folder, cycles // 4)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    clock, cycles = suite.arguments()
    # This cell starts a running profiler all the time.
    logging.getLogger("spanprof").setLevel(logging.ERROR)
    suite.watch(cycles)
    folder = suite.start(clock, 1000)
    spanprof.stop()
    # The first cycles fill pools, which are kept.
    run(clock, folder, min(cycles, 200))
    time.sleep(0.2)
    before = suite.resident_bytes(), suite.open_files(), suite.kernel_threads()
    run(clock, folder, cycles)
    spanprof.stop()
    time.sleep(0.2)
    after = suite.resident_bytes(), suite.open_files(), suite.kernel_threads()
    print(f"{cycles} cycles: memory, descriptors, threads {before} before, {after} after")
    if after[0] - before[0] > GROWTH_BYTES or after[1] > before[1] or after[2] > before[2]:
        sys.exit("start and stop leave something behind")


if __name__ == "__main__":
    main()
