"""Cost of profilers in a web service: CPU time of a fixed number of requests in a fresh process, at default settings, beside
the same service without a profiler; prints Markdown.

Each process prints its port, gets requests over a few connections, each of which sends its next one when it has the answer, and
ends with its standard input, when it prints the profiler's counters as JSON. The first requests warm up compilers and caches.
CPU time is that of the process, by its CPU clock, so that the profiler's own threads count. Every round runs one process of each
profiler after the other, in random order: a machine that becomes slower affects them alike. The process has a processor of its
own; the client and the receiver have another one.
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time

import measuring

CONNECTIONS = 4
#: Bodies of requests, which the client prepares.
BODIES = 1000


class Service:
    """A running service."""

    def __init__(self, command, address, processor):
        words = [*command, address]
        if processor is not None:
            words = ["taskset", "--cpu-list", str(processor), *words]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        # CPUCLOCK_SCHED of the process: <linux/posix-timers.h>.
        self.clock = (~self.process.pid << 3) | 2

    def cpu_seconds(self):
        return time.clock_gettime(self.clock)

    def resident_megabytes(self):
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    async def measure(self, warm_up, requests):
        """CPU seconds per request after the warm-up, and resident megabytes."""
        connections = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(CONNECTIONS)]

        async def send(count):
            numbers = iter(range(count))
            await asyncio.gather(*(send_each(numbers, *connection) for connection in connections))

        await send(warm_up)
        before = self.cpu_seconds()
        await send(requests)
        return (self.cpu_seconds() - before) / requests, self.resident_megabytes()

    def end(self):
        """The profiler's counters."""
        output, _ = self.process.communicate(timeout=60)
        if self.process.returncode != 0:
            raise SystemExit(f"a service ended with {self.process.returncode}: {output}")
        return json.loads(output.splitlines()[-1])


async def send_each(numbers, reader, writer):
    """Sends the requests of these numbers over one connection, one at a time."""
    for number in numbers:
        writer.write(MESSAGES[number % BODIES])
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))


def message(number):
    """A request of 120 order lines."""
    lines = [{"name": f"article-{number % 50}-{line}", "count": 1 + (number + line) % 9} for line in range(120)]
    body = json.dumps({"order": number, "lines": lines}).encode()
    return b"POST /order HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


MESSAGES = [message(number) for number in range(BODIES)]


def ratio(values, bare):
    """Median of the ratios within a round, with its 95 % interval."""
    middle, low, high = measuring.median_interval([value / other for value, other in zip(values, bare)])
    return f"{middle:.3f} ({low:.3f} … {high:.3f})"


def main():
    given = measuring.arguments()
    rounds, warm_up, requests = (2, 200, 500) if given.short else (7, 5_000, 25_000)
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) > 1:
        os.sched_setaffinity(0, processors[1:])
    own = processors[0] if len(processors) > 1 else None
    micros = {name: [] for name in given.commands}
    megabytes = {name: [] for name in given.commands}
    counted = {name: {} for name in given.commands}
    receiver = subprocess.Popen([sys.executable, measuring.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    address = receiver.stdout.readline().strip()
    for _ in range(rounds):
        for name in random.sample(list(given.commands), len(given.commands)):
            service = Service(given.commands[name], address, own)
            seconds, resident = asyncio.run(service.measure(warm_up, requests))
            micros[name].append(seconds * 1e6)
            megabytes[name].append(resident)
            for counter, value in service.end().items():
                counted[name][counter] = counted[name].get(counter, 0) + value
    receiver.communicate()
    print(
        f"CPU time of {requests} JSON requests after {warm_up} others, each time in a fresh process; default settings, {rounds} processes per "
        "row, in turn. Ratio: median of the ratios within a round, and its 95 % interval; ratio of the minima. Memory: median at the end.\n"
    )
    bare = next(iter(given.commands))
    rows = [
        [
            name,
            f"{min(micros[name]):.0f}",
            f"{statistics.median(micros[name]):.0f}",
            f"{max(micros[name]):.0f}",
            ratio(micros[name], micros[bare]),
            f"{min(micros[name]) / min(micros[bare]):.3f}",
            f"{statistics.median(megabytes[name]) - statistics.median(megabytes[bare]):+.1f}",
        ]
        for name in given.commands
    ]
    head = ["profiler", "CPU per request, µs: min", "median", "max", "ratio", "ratio of minima", "memory over none, MB"]
    measuring.table(head, rows)
    print("Counted by the profiler in these processes:\n")
    counters = [
        [name, ", ".join(f"{key} {value}" for key, value in sorted(totals.items()) if value)] for name, totals in counted.items() if totals
    ]
    measuring.table(["profiler", "samples and losses"], counters)


if __name__ == "__main__":
    main()
