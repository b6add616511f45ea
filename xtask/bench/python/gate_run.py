"""One run of the benchmark gate: a program of 20 functions of fixed work in random order, profiled into files.

    gate_run.py FOLDER CPU_SECONDS RATE FACTOR

`function_00` does FACTOR times its work. Each run is a process with its own seed of hashes, addresses and order of calls.
"""

import random
import sys
import time

import spanprof

#: Iterations of one call: 16 % in the first function, down to 1 %. A call takes less than the sampling interval.
ITERATIONS = [600, 480, 400, 360, 320, 280, 240, 200, 160, 120, 100, 80, 60, 60, 60, 40, 40, 40, 40, 40]


def functions():
    """The functions: equal loops, each with code and a name of its own."""
    made = []
    for number in range(len(ITERATIONS)):
        name = f"function_{number:02}"
        source = f"def {name}(count):\n    total = {number}\n    for step in range(count):\n        total += step * step\n    return total\n"
        names = {}
        exec(compile(source, f"/srv/shop/{name}.py", "exec"), names)  # pylint: disable=exec-used
        made.append(names[name])
    return made


def main():
    folder, cpu_seconds, rate, factor = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    iterations = [round(ITERATIONS[0] * factor), *ITERATIONS[1:]]
    calls = [*zip(functions(), iterations)] * 4
    destination = {"type": "file", "directory": folder, "keep": 10_000}
    spanprof.start(service_name="work", sample_rate=rate, heap=False, gc=False, upload_interval=1, destinations=[destination])
    clock = time.thread_time
    end = clock() + cpu_seconds
    while clock() < end:
        random.shuffle(calls)
        for work, count in calls:
            work(count)
    spanprof.stop()


if __name__ == "__main__":
    main()
