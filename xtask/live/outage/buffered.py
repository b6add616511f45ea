"""Works until it is terminated, with a disk buffer. Prints the export counters five times per second.

    buffered.py PORT DIRECTORY
"""

import json
import sys
import threading
import time

import spanprof

PREFIX = "export.0."


def work():
    total = 0
    for number in range(60_000):
        total += number * number
    return total


def report():
    while True:
        counters = {name[len(PREFIX) :]: value for name, value in spanprof.stats().items() if name.startswith(PREFIX)}
        print(json.dumps(counters), flush=True)
        time.sleep(0.2)


# Without a budget: an unoptimized build would get longer windows, and thus fewer requests.
spanprof.start(
    service_name="live-buffer",
    endpoint=f"http://127.0.0.1:{sys.argv[1]}",
    buffer_directory=sys.argv[2],
    upload_interval=1,
    timeout=2,
    cpu_budget=0,
)
threading.Thread(target=report, daemon=True).start()
turn = 0
while True:
    turn += 1
    with spanprof.tag_wrapper({"endpoint": f"/orders/{turn % 50}"}):
        work()
    time.sleep(0.02)
