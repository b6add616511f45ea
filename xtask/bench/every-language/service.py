"""Cost of profilers in a web service: CPU time per request, median latency and resident memory, each beside the same service
without a profiler; prints Markdown.

The first service is the one without a profiler. Each gets the address of a receiver and the seconds of a window, prints its port, serves until its standard input ends, and prints the
profiler's counters as JSON.

All services of a set run at the same time, and one at a time is under load: every round visits each in random order, with the
same arrivals. They share a processor; the client and the receiver have another one. CPU time is that of the process, by its CPU
clock. Latency is that of the client, from the arrival of a request, so it includes the wait for a connection.
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time

import programs
from programs import measuring

CONNECTIONS = 8
#: Part of a processor that the service without a profiler uses.
LOAD = 0.4
#: Limits of the issue: percent of CPU time, percent of the median latency, megabytes.
GOALS = {"heap": (1, None, None), "all": (5, 3, 24)}


class Service:
    """A running service, its connections and its measurements."""

    def __init__(self, name, command, address, window, processor):
        self.name = name
        words = [*command, address, str(window)]
        if processor is not None:
            words = ["taskset", "--cpu-list", str(processor), *words]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        # CPUCLOCK_SCHED of the process: <linux/posix-timers.h>.
        self.clock = (~self.process.pid << 3) | 2
        self.free = None

    async def connect(self):
        self.free = asyncio.Queue()
        for _ in range(CONNECTIONS):
            self.free.put_nowait(await asyncio.open_connection("127.0.0.1", self.port))

    def cpu_seconds(self):
        return time.clock_gettime(self.clock)

    def resident_megabytes(self):
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    async def request(self, number):
        """The latency in seconds."""
        began = time.perf_counter()
        reader, writer = await self.free.get()
        writer.write(message(number))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        self.free.put_nowait((reader, writer))
        return time.perf_counter() - began

    async def load(self, arrivals):
        """CPU seconds per request, and the median latency."""
        before, began = self.cpu_seconds(), time.perf_counter()
        requests = []
        for number, arrival in enumerate(arrivals):
            await asyncio.sleep(max(0, began + arrival - time.perf_counter()))
            requests.append(asyncio.ensure_future(self.request(number)))
        latencies = await asyncio.gather(*requests)
        return (self.cpu_seconds() - before) / len(arrivals), statistics.median(latencies)

    def end(self):
        """The profiler's counters."""
        said, _ = self.process.communicate(timeout=60)
        return json.loads(said.splitlines()[-1])


def message(number):
    """A request of 120 order lines."""
    lines = [{"name": f"article-{number % 50}-{line}", "count": 1 + (number + line) % 9} for line in range(120)]
    body = json.dumps({"order": number, "lines": lines}).encode()
    return b"POST /order HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def arrivals(per_second, seconds):
    """Times of a Poisson process."""
    times, now = [], random.expovariate(per_second)
    while now < seconds:
        times.append(now)
        now += random.expovariate(per_second)
    return times


async def one_set(commands, address, window, rounds, seconds, processor, measured):
    """Starts every service and measures the rounds; returns the requests a second."""
    services = [Service(name, command, address, window, processor) for name, command in commands.items()]
    for service in services:
        await service.connect()
    # Compilers and caches warm up; the last one shows the CPU time of a request.
    for part in (1, 1, 1):
        for service in services:
            await service.load([number / 200 for number in range(int(200 * seconds * part))])
    each, _ = await services[0].load([number / 100 for number in range(100)])
    per_second = LOAD / each
    for _ in range(rounds):
        times = arrivals(per_second, seconds)
        ramp = arrivals(per_second, seconds / 10)
        results = {}
        for service in random.sample(services, len(services)):
            await service.load(ramp)
            results[service.name] = await service.load(times)
        for name, result in results.items():
            bare = results[services[0].name]
            measured[name]["cpu"].append(100 * (result[0] / bare[0] - 1))
            measured[name]["latency"].append(100 * (result[1] / bare[1] - 1))
            measured[name]["micros"].append(result[0] * 1e6)
            measured[name]["millis"].append(result[1] * 1e3)
    bare = services[0].resident_megabytes()
    for service in services:
        measured[service.name]["memory"].append(service.resident_megabytes() - bare)
        measured[service.name]["counters"].append(service.end())
    return per_second


def percent(values):
    middle, low, high = measuring.median_interval(values)
    return f"{middle:+.2f} ({low:+.2f} … {high:+.2f})"


def goal(name):
    limits = GOALS.get(name.removeprefix("spanprof, "))
    if limits is None:
        return "–"
    words = zip(limits, ("CPU ≤ {} %", "p50 ≤ +{} %", "memory ≤ {} MB"))
    return ", ".join(word.format(limit) for limit, word in words if limit is not None)


def main():
    given = programs.arguments()
    commands = given.commands
    sets, rounds, seconds = (1, 2, 1.0) if given.short else (2, 9, 2.0)
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) > 1:
        os.sched_setaffinity(0, processors[1:])
    own = processors[0] if len(processors) > 1 else None
    measured = {name: {key: [] for key in ("cpu", "latency", "micros", "millis", "memory", "counters")} for name in commands}
    receiver = subprocess.Popen([sys.executable, measuring.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    address = receiver.stdout.readline().strip()
    rates = [asyncio.run(one_set(commands, address, seconds, rounds, seconds, own, measured)) for _ in range(sets)]
    receiver.communicate()
    print(
        f"JSON requests at {statistics.median(rates):.0f} a second, random arrivals, {LOAD:.0%} of a processor. {sets} sets of processes, "
        f"{rounds} rounds each, {seconds:.0f} s of load per service and round, and one window in that time (default: 10 s). Medians, and "
        "95 % intervals of the differences within a round; memory at the end.\n"
    )
    rows = []
    for name, of in measured.items():
        rows.append([
            name,
            f"{statistics.median(of['micros']):.0f}",
            percent(of["cpu"]),
            f"{statistics.median(of['millis']):.2f}",
            percent(of["latency"]),
            f"{statistics.median(of['memory']):+.1f}",
            goal(name),
        ])
    measuring.table(["profiler", "CPU per request, µs", "CPU, %", "p50, ms", "p50, %", "memory over none, MB", "goal"], rows)
    counted = []
    for name, of in measured.items():
        totals = {key: sum(counters.get(key, 0) for counters in of["counters"]) for counters in of["counters"] for key in counters}
        if totals:
            counted.append([name, ", ".join(f"{key} {value}" for key, value in sorted(totals.items()) if value)])
    print("Counted by the profiler in these runs:\n")
    measuring.table(["profiler", "samples and losses"], counted)


if __name__ == "__main__":
    main()
