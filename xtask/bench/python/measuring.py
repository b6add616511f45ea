"""Shared by the benchmarks: arguments, child processes that print JSON, intervals, tables, a receiver that accepts everything."""

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    """Arguments of `cargo xtask bench`: the command line, a folder, the wheel, and one interpreter per profiler."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--command", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--wheel", required=True)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("profilers", nargs="+")
    given = parser.parse_args()
    given.pythons = dict(entry.split("=", 1) for entry in given.profilers)
    return given


def child(python, script, *words, env=None, processor=None):
    """Runs a script of this directory to its end, on one processor if requested; returns the JSON of its last line."""
    words = [python, os.path.join(HERE, script), *map(str, words)]
    if processor is not None:
        words = ["taskset", "--cpu-list", str(processor), *words]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    return json.loads(done.stdout.splitlines()[-1])


def median_interval(values):
    """Median, and the bounds of its 95 % interval by order statistics (no shape of the noise is assumed)."""
    ordered = sorted(values)
    count = len(ordered)
    reach = 1.96 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach) - 1)
    return statistics.median(ordered), ordered[low], ordered[max(low, high)]


def table(head, rows):
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    print("\n".join(lines) + "\n")


class Swallow(BaseHTTPRequestHandler):
    """Accepts everything with status 200."""

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while (size := int(self.rfile.readline().split(b";")[0], 16)) > 0:
                self.rfile.read(size + 2)
            self.rfile.readline()
        else:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_POST

    def log_message(self, *_):
        """Silent."""


@contextlib.contextmanager
def swallowing_receiver():
    """The address of a receiver. It costs the measured process only the sending."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Swallow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


if __name__ == "__main__":
    # As a process of its own: prints its address, ends with its standard input.
    with swallowing_receiver() as printed:
        print(printed, flush=True)
        sys.stdin.read()
