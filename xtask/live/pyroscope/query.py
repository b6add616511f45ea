"""Queries Pyroscope for one service of `live pyroscope` and compares with the sent profiles: series, labels, span, diff,
totals at each hop. Prints one row of the table; exits with the differences."""

import argparse
import json
import subprocess
import sys
import time
import urllib.request

from program import REQUEST_CPU_SECONDS, SPAN_CPU_SECONDS, SPAN_ID, TRACE_ID

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
PERIOD_NS = 1_000_000_000 // 250
MOST_SERIES = 24
# Tolerance between the samples and Pyroscope. Values count whole periods: the last partial period of each thread is
# missing, and stop() sends samples taken after the figure was read. A VM has many threads. Later hops must be equal.
REMAINDER_NS = {"rust": 5 * PERIOD_NS, "python": 5 * PERIOD_NS, "node": 12 * PERIOD_NS, "java": 40 * PERIOD_NS}


class Pyroscope:
    """The Connect API of a running server, over the last hour."""

    def __init__(self, port, service):
        self.url = f"http://127.0.0.1:{port}/querier.v1.QuerierService/"
        self.service = service
        now = int(time.time() * 1000)
        self.range = {"start": now - 3_600_000, "end": now + 60_000}

    def call(self, method, **body):
        data = json.dumps({**self.range, **body}).encode()
        request = urllib.request.Request(self.url + method, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def selector(self, **labels):
        pairs = {"service_name": self.service, **labels}
        return "{" + ", ".join(f'{name}="{value}"' for name, value in pairs.items()) + "}"

    def series(self):
        answer = self.call("Series", matchers=[self.selector()])
        return [{label["name"]: label["value"] for label in one["labels"]} for one in answer.get("labelsSet", [])]

    def total(self, **labels):
        return flamegraph_total(self.call("SelectMergeStacktraces", **self.query(**labels)))

    def query(self, **labels):
        return {"profileTypeID": CPU, "labelSelector": self.selector(**labels)}

    def span_total(self, span_id):
        return flamegraph_total(self.call("SelectMergeSpanProfile", **self.query(), spanSelector=[span_id]))

    def diff(self, left, right):
        sides = [{**self.range, **self.query(endpoint=endpoint)} for endpoint in (left, right)]
        graph = self.call("Diff", left=sides[0], right=sides[1]).get("flamegraph", {})
        return int(graph.get("leftTicks", 0)), int(graph.get("rightTicks", 0))

    def services(self):
        return self.call("LabelValues", name="service_name", matchers=[]).get("names", [])


def flamegraph_total(answer):
    return int(answer.get("flamegraph", {}).get("total", 0))


def collector_total(command, written, service):
    """CPU nanoseconds of the service in the Collector's own file."""
    words = [command, "top", written, "--service", service, "--type", "cpu", "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    # A line may be incomplete.
    return json.loads(done.stdout)["total"] if done.returncode == 0 else -1


def wait_until_equal(pyroscope, at_collector):
    """The totals at the Collector and at Pyroscope: both store the last request asynchronously."""
    until = time.monotonic() + 15
    while True:
        totals = at_collector(), pyroscope.total()
        if totals[0] == totals[1] or time.monotonic() > until:
            return totals
        time.sleep(0.3)


def wait_for_series(pyroscope):
    """Waits: a Collector's queue delivers after its response."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        series = pyroscope.series()
        if series:
            return series
        time.sleep(0.3)
    sys.exit(f"no series of service {pyroscope.service}; services: {pyroscope.services()}")


def differences(given, pyroscope, series, stored):
    """Messages of the failed comparisons."""
    cart, pay, rest = (pyroscope.total(endpoint=value) for value in ("/cart", "/pay", ""))
    if cart + pay + rest != stored:
        yield f"labels add up to {cart} + {pay} + {rest} ns, the whole is {stored} ns"
    requests_ns = (given.requests - 1) * REQUEST_CPU_SECONDS * 1e9
    pay_share = pay / (cart + pay)
    expected_share = requests_ns / 3 / (requests_ns + SPAN_CPU_SECONDS * 1e9)
    if abs(pay_share - expected_share) > 0.08:
        yield f"/pay has {pay_share:.1%} of the labelled time, the program gave it {expected_share:.1%}"
    if pyroscope.diff("/cart", "/pay") != (cart, pay):
        yield f"the diff compares {pyroscope.diff('/cart', '/pay')}, the labels have {(cart, pay)}"
    span = pyroscope.span_total(SPAN_ID)
    wanted = 0 if given.link == "none" else SPAN_CPU_SECONDS * 1e9
    if abs(span - wanted) > 0.15 * SPAN_CPU_SECONDS * 1e9:
        yield f"the span has {span / 1e9:.3f} s, the program burnt {wanted / 1e9:.3f} s in it"
    has_pid = any("process_pid" in one for one in series)
    if has_pid != (given.route not in ("collector_http", "no_instance")):
        yield f"process_pid {'is' if has_pid else 'is not'} a label of the series on route {given.route}"
    traces = {one["trace_id"] for one in series if "trace_id" in one}
    if given.link == "trace_and_span":
        if TRACE_ID not in traces or len(series) < given.requests / 4:
            yield f"Pyroscope 1.x should make a series of each trace, got {len(series)}: does `link` still matter?"
    elif traces or len(series) > MOST_SERIES:
        yield f"{len(series)} series after {given.requests} requests, {len(traces)} of them by trace; at most {MOST_SERIES}"
    if any(name.startswith("unknown_service") for name in pyroscope.services()):
        yield f"a profile arrived without its service: {pyroscope.services()}"


def main():
    parser = argparse.ArgumentParser()
    for name in ("service", "language", "route", "link", "figure"):
        parser.add_argument(name)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--collector", nargs=2, metavar=("SPANPROF", "FILE"))
    given = parser.parse_args()
    pyroscope = Pyroscope(given.port, given.service)
    series = wait_for_series(pyroscope)
    between = "-"
    collected = stored = pyroscope.total()
    if given.collector:
        collected, stored = wait_until_equal(pyroscope, lambda: collector_total(*given.collector, given.service))
        between = f"{collected / 1e9:.3f}"
    with open(given.figure) as file:
        sampled = int(file.read())
    problems = list(differences(given, pyroscope, series, stored))
    if collected != stored:
        problems.append(f"the Collector has {collected} ns, Pyroscope {stored} ns")
    if abs(sampled - stored) > REMAINDER_NS[given.language]:
        problems.append(f"the samples carry {sampled} ns, Pyroscope has {stored} ns")
    print(
        f"| {given.language} | {given.route} | {given.link} | {sampled / 1e9:.3f} | {between} | {stored / 1e9:.3f} "
        f"| {pyroscope.span_total(SPAN_ID) / 1e9:.3f} | {len(series)} | {given.service} |"
    )
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
