"""Threads contend for a lock of each kind, under one profiler. Prints the measured waits as JSON, for ../every-language.

    waits_run.py PROFILER NUMBER FOLDER
"""

import json
import sys
import threading
import time

import peers

THREADS = 8
#: Seconds for which each kind is contended.
SECONDS = 1.5
HELD_SECONDS = 0.001
TYPES = {"spanprof": ("delay", ""), "ddtrace": ("lock-acquire-wait", peers.FILE)}


def start(name, folder):
    """Starts a profiler; returns its stop function."""
    if name == "spanprof":
        import spanprof

        files = [{"type": "file", "directory": folder}]
        spanprof.start(cpu=False, gc=False, heap=False, lock=True, upload_interval=3600, destinations=files)
        return spanprof.stop
    # Every acquisition; its default is one in a hundred.
    return peers.ddtrace(folder, DD_PROFILING_LOCK_ENABLED="true", DD_PROFILING_CAPTURE_PCT="100")


def plain_lock(lock, until):
    return waits(lock, until)


def reentrant_lock(lock, until):
    return waits(lock, until)


def semaphore(lock, until):
    return waits(lock, until)


def waits(lock, until):
    """The nanoseconds of all waits of this thread."""
    total = 0
    while (began := time.monotonic_ns()) < until:
        lock.acquire()
        total += time.monotonic_ns() - began
        time.sleep(HELD_SECONDS)
        lock.release()
    return total


def contended(function, lock):
    """The nanoseconds of all waits."""
    totals = []
    until = time.monotonic_ns() + int(SECONDS * 1e9)
    threads = [threading.Thread(target=lambda: totals.append(function(lock, until))) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(totals)


def main():
    name, folder = sys.argv[1], sys.argv[3]
    stop = start(name, folder)
    kinds = {plain_lock: threading.Lock, reentrant_lock: threading.RLock, semaphore: threading.Semaphore}
    truth = {function.__name__: contended(function, make()) for function, make in kinds.items()}
    stop()
    profile_type, file = TYPES[name]
    checks = [
        {"name": function, "type": profile_type, "file": file, "function": function, "truth": total} for function, total in truth.items()
    ]
    print(json.dumps({"checks": checks}))


if __name__ == "__main__":
    main()
