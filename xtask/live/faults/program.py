"""Starts the profiler, labels work in threads for some windows, forks and stops, between marks: the names of missing files.

    program.py bare|profiled

The tracer makes system calls between the marks `begin` and `end` fail; the output and the status must be those of the bare run.
"""

import hashlib
import os
import sys
import threading
import time

PROFILED = sys.argv[1] == "profiled"
if PROFILED:
    import spanprof

#: Some windows long.
SECONDS = 0.35


def marked(call):
    os.path.exists("/faults/begin")
    try:
        return call()
    finally:
        os.path.exists("/faults/end")


def work(number):
    with spanprof.tag_wrapper({"k": str(number)}) if PROFILED else threading.Lock():
        digest = hashlib.sha256()
        for round in range(10_000):
            digest.update(str(round * number).encode())
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            [str(round) for round in range(1_000)]
        return digest.hexdigest()[:8]


print("ready", flush=True)
sys.stdin.readline()
if PROFILED:
    marked(lambda: spanprof.start(file_directory=os.environ["DIRECTORY"], upload_interval=0.1, stop_timeout=10))
results = {}
threads = [threading.Thread(target=lambda number=number: results.update({number: work(number)})) for number in (1, 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
child = marked(os.fork)
if child == 0:
    os._exit(len(work(3)))
status = os.waitpid(child, 0)[1]
if PROFILED:
    marked(spanprof.stop)
print(sorted(results.items()), status, flush=True)
