"""400 blocked threads: idle, then a burst of one function, then idle. Prints the profiler's CPU time in each 10 s as
`window ELAPSED_NS COST_NS PROCESS_NS SAMPLE_RATE LIMITED_BY`. Arguments: the directory of the profiles, idle windows, burst windows."""

import sys
import threading
import time

import spanprof

directory, idle, burst = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
over, bursting = threading.Event(), threading.Event()


def hot_function(until):
    total = 0
    while time.monotonic() < until:
        for number in range(1000):
            total += number * number
    return total


def wait():
    bursting.wait()
    over.wait()


def cost_ns():
    stats = spanprof.stats()
    return stats["cost.own_cpu_ns"] + stats["clock.handler_ns"] + stats["clock.delivery_ns"]


def window():
    began, before, process_before = time.monotonic_ns(), cost_ns(), spanprof.stats()["cost.process_cpu_ns"]
    time.sleep(10)
    cost, stats = cost_ns() - before, spanprof.stats()
    used = stats["cost.process_cpu_ns"] - process_before
    print("window", time.monotonic_ns() - began, cost, used, stats["governor.sample_rate"], stats["governor.limited_by"], flush=True)


for _ in range(400):
    threading.Thread(target=wait, daemon=True).start()
spanprof.start(file_directory=directory)
time.sleep(21)
for _ in range(idle):
    window()
workers = [threading.Thread(target=hot_function, args=(time.monotonic() + 10 * burst,)) for _ in range(4)]
for worker in workers:
    worker.start()
for _ in range(burst):
    window()
for worker in workers:
    worker.join()
window()
over.set()
bursting.set()
spanprof.stop()
