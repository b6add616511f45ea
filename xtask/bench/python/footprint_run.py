"""Starts one profiler in a fresh process; prints the times of import and start and the resident memory after some work, as JSON.

    footprint_run.py PROFILER ADDRESS SECONDS
"""

import json
import os
import sys
import time

import profilers
import work


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main():
    name, address, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    began = time.perf_counter()
    profilers.load(name)
    loaded = time.perf_counter()
    stop = profilers.start(name, 100, address)
    started = time.perf_counter()
    work.mix(work.PARTS, 20, seconds)
    resident = resident_bytes()
    stop()
    print(json.dumps({"import_ms": (loaded - began) * 1000, "start_ms": (started - loaded) * 1000, "resident": resident}))


if __name__ == "__main__":
    main()
