"""Shared by the scripts of this directory: arguments, intervals, tables, a receiver that accepts everything."""

import argparse
import contextlib
import json
import math
import statistics
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def arguments():
    """Names and commands of the programs in the order of the table, the command line, and a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", required=True)
    parser.add_argument("--command", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args()
    with open(given.programs) as file:
        given.commands = dict(json.load(file))
    return given


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
