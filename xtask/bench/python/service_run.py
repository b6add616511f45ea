"""A web service under one profiler: JSON in and out, checks, prices, sorting, HTML, a cache behind a lock. Prints its port, serves until its
standard input ends, then prints the profiler's counters as JSON.

    service_run.py PROFILER ADDRESS
"""

import html
import json
import re
import sys
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import profilers

#: Orders that the cache holds; older ones are evicted.
CACHED = 2_000
NAME = re.compile(r"[a-z]+(-[0-9]+)+")


class Shop:
    """The orders by number. Threads of requests contend for its lock."""

    def __init__(self):
        self.lock = threading.Lock()
        self.orders = OrderedDict()

    def order(self, body):
        request = json.loads(body)
        lines = [self.line(line) for line in request["lines"]]
        lines.sort(key=lambda line: (-line["price"], line["name"]))
        answer = json.dumps({
            "order": request["order"],
            "lines": lines,
            "total": sum(line["price"] for line in lines),
            "page": "".join(f"<tr><td>{html.escape(line['name'])}</td><td>{line['price']}</td></tr>" for line in lines),
        }).encode()
        with self.lock:
            self.orders[request["order"]] = answer
            while len(self.orders) > CACHED:
                self.orders.popitem(last=False)
        return answer

    def line(self, line):
        if not NAME.fullmatch(line["name"]):
            raise ValueError(line["name"])
        price = 0
        for discount in range(line["count"]):
            price += 100 - discount % 7
        return {"name": line["name"].upper(), "count": line["count"], "price": price, "text": line["name"].replace("-", " ")}


class ShopHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise the header waits for the acknowledgement of the previous packet.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self):
        answer = self.server.shop.order(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Silent."""


def main():
    stop = profilers.start_service(sys.argv[1], sys.argv[2])
    # The lock is created while the profiler runs, as in a service that starts it first.
    server = ThreadingHTTPServer(("127.0.0.1", 0), ShopHandler)
    server.daemon_threads = True
    server.shop = Shop()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    print(json.dumps(stop()), flush=True)


if __name__ == "__main__":
    main()
