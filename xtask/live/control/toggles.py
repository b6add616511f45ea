"""Changes a busy profiler ten times per second by calls, the watched file and requests at once; then compares totals.

Arguments: the working directory, seconds. Prints `changes COUNT`, `file_seconds SECONDS`, `totals RATIO` and `panics COUNT`.
"""

import http.client
import os
import sys
import threading
import time

import spanprof

directory, seconds = sys.argv[1], float(sys.argv[2])
config_file = os.path.join(directory, "spanprof.yaml")
lock = threading.Lock()
changes = 0


def work(until: float) -> None:
    while time.monotonic() < until:
        with lock:
            [object() for _ in range(2000)]


def write(text: str) -> None:
    with open(config_file + ".new", "w") as file:
        file.write(text)
    os.replace(config_file + ".new", config_file)


def request(method: str, body: str = "") -> None:
    connection = http.client.HTTPConnection(spanprof.stats()["pull.address"])
    connection.request(method, "/debug/spanprof", body, {"Authorization": "Bearer secret"})
    status = connection.getresponse().status
    connection.close()
    assert status == 200, (method, status)


def by_call(number: int) -> None:
    spanprof.update(enabled=number % 2 == 0, sample_rate=1 + number * 37 % 1000, wall=number % 3 == 0)


def by_request(number: int) -> None:
    if number % 3 == 0:
        request("PATCH", '{"heap": %s, "lock": %s}' % (("true", "false") if number % 2 else ("false", "true")))
    else:
        request("POST" if number % 3 == 1 else "DELETE")


def by_file(number: int) -> None:
    write(f"sample_rate: {1 + number % 500}\nenabled: {str(number % 2 == 0).lower()}\ngc: {str(number % 3 == 0).lower()}\n")


def repeat(change, until: float) -> None:
    global changes
    number = 0
    while time.monotonic() < until:
        change(number)
        number += 1
        changes += 1
        time.sleep(0.1)


write("sample_rate: 100\n")
# The governor would limit the rates that these changes set.
assert spanprof.start(
    file_directory=directory,
    config_file=config_file,
    pull="127.0.0.1:0",
    pull_token="secret",
    profiles="all",
    cpu_budget=0,
)
end = time.monotonic() + seconds
writers = [threading.Thread(target=repeat, args=(change, end)) for change in (by_call, by_request, by_file)]
workers = [threading.Thread(target=work, args=(end,)) for _ in range(4)]
for thread in writers + workers:
    thread.start()
for thread in writers + workers:
    thread.join()
print("changes", changes)

spanprof.update(enabled=True, wall=False, heap=False, lock=False)
time.sleep(1)
write("sample_rate: 123\n")
begun = time.monotonic()
while spanprof.stats()["config.sample_rate"] != "123":
    work(time.monotonic() + 0.02)
print("file_seconds", time.monotonic() - begun)


def counter(*names: str) -> int:
    stats = spanprof.stats()
    return sum(stats[name] for name in names)


def sampled_ns() -> int:
    spanprof.flush()
    return counter("samples.cpu_ns", "samples.unseen_distributed_ns", "samples.unseen_shown_ns")


spanprof.update(enabled=False)
before, enabled_ns = sampled_ns(), 0
for number in range(50):
    # The statistics are read outside of the measured time.
    own = counter("cost.own_cpu_ns")
    begun = time.process_time_ns()
    spanprof.update(enabled=True, sample_rate=[20, 100, 1000][number % 3])
    work(time.monotonic() + 0.1)
    spanprof.update(enabled=False)
    enabled_ns += time.process_time_ns() - begun - (counter("cost.own_cpu_ns") - own)
    work(time.monotonic() + 0.05)
print("totals", (sampled_ns() - before) / enabled_ns)
print("panics", counter("internal.panics"))
spanprof.stop()
