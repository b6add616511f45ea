"""Drives the service at a fixed arrival rate while its receiver is available, unavailable, and available again.

    outage.py MODE PORT SECONDS COMMAND FOLDER

While it is unavailable, latency and memory stay constant, and counters show each loss. Afterwards delivery resumes.
"""

import atexit
import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import time

from receivers import MODES

ARRIVALS_HZ = 40
#: Noise of a shared machine of two cores; a service that waits for its receiver is delayed by its timeout of 2 s.
P50_MAY_GROW_MS = 1.0
P99_MAY_GROW_MS = 25.0
RESIDENT_MAY_GROW_BYTES = 16 << 20
RECOVERY_SECONDS = 60


class Service:
    """The service process and one connection to it."""

    def __init__(self, receiver_port):
        script = os.path.join(os.path.dirname(__file__), "service.py")
        self.process = subprocess.Popen([sys.executable, script, str(receiver_port)], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        # Also when the suite fails: no process stays.
        atexit.register(self.process.kill)

    def get(self, path):
        self.connection.request("GET", path)
        answer = self.connection.getresponse()
        body = json.loads(answer.read())
        if answer.status != 200:
            sys.exit(f"the service answered {answer.status}")
        return body

    def latencies_ms(self, seconds):
        """Latency of each request from its scheduled time."""
        latencies = []
        due = time.monotonic()
        until = due + seconds
        while due < until:
            time.sleep(max(0.0, due - time.monotonic()))
            self.get("/work")
            latencies.append((time.monotonic() - due) * 1000)
            due += 1 / ARRIVALS_HZ
        return latencies


@contextlib.contextmanager
def receiver(command, port, folder):
    """A `spanprof serve`."""
    words = [command, "serve", "--quiet", "--grpc", "0", "--http", str(port), "--dir", folder]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


def quantiles(latencies):
    return statistics.median(latencies), sorted(latencies)[int(len(latencies) * 0.99)]


def export_counters(service):
    stats = service.get("/health")["stats"]
    return {name[len("export.0.") :]: value for name, value in stats.items() if name.startswith("export.0.")}


def balance(counters):
    """Requests that are neither sent, dropped for a reason, nor waiting. Splits add requests."""
    dropped = sum(value for name, value in counters.items() if name.startswith("dropped_") and name != "dropped_samples")
    return counters["enqueued"] + counters["splits"] - counters["sent"] - dropped - counters["queue_payloads"]


def check_latency(mode, before, away, after):
    for name, at in (("p50", 0), ("p99", 1)):
        print(f"{mode}: {name} {before[at]:.2f} ms before, {away[at]:.2f} ms away, {after[at]:.2f} ms after")
    # The difference between before and after is the noise of the machine.
    if away[0] > max(before[0], after[0]) + P50_MAY_GROW_MS or away[1] > max(before[1], after[1]) + P99_MAY_GROW_MS:
        sys.exit("latency moved while the receiver was away")


def check(mode, resident, counters):
    print(f"{mode}: resident {resident[0] >> 20} → {resident[1] >> 20} MiB; {counters['retries']} retries,", end=" ")
    print(f"{counters['queue_payloads']} waiting: {counters.get('last_error')}")
    if resident[1] - resident[0] > RESIDENT_MAY_GROW_BYTES:
        sys.exit("memory grew while the receiver was away")
    if not counters.get("last_error") or counters["queue_payloads"] == 0:
        sys.exit(f"the counters do not tell that the receiver is away: {counters}")
    if balance(counters) != 0:
        sys.exit(f"{balance(counters)} requests are unaccounted for: {counters}")


def main():
    mode, port, seconds, command, folder = sys.argv[1:]
    port, seconds = int(port), float(seconds)
    with receiver(command, port, folder):
        service = Service(port)
        service.latencies_ms(3)
        normal = quantiles(service.latencies_ms(seconds))
        before = service.get("/health")["resident_bytes"]
        if export_counters(service)["sent"] == 0:
            sys.exit("nothing was delivered while the receiver was there")
    with MODES[mode](port):
        away = quantiles(service.latencies_ms(seconds))
        health = service.get("/health")["resident_bytes"]
        counters = export_counters(service)
        check(mode, (before, health), counters)
    with receiver(command, port, folder):
        sent, until = counters["sent"], time.monotonic() + RECOVERY_SECONDS
        while (now := export_counters(service))["queue_payloads"] > 1 or now["sent"] <= sent:
            if time.monotonic() > until:
                sys.exit(f"delivery did not resume within {RECOVERY_SECONDS} s: {now}")
            time.sleep(0.2)
        print(f"{mode}: delivery resumed, {now['sent'] - sent} requests arrived after it")
        check_latency(mode, normal, away, quantiles(service.latencies_ms(seconds)))
        service.process.terminate()
        service.process.wait(timeout=20)


if __name__ == "__main__":
    main()
