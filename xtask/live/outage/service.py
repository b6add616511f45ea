"""A small web service under spanprof: GET /work uses some CPU time, GET /health returns resident memory and stats()."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import spanprof


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one packet: otherwise the measurement includes the client's delayed acknowledgement.
    wbufsize = 65_536

    def do_GET(self):
        if self.path == "/work":
            with spanprof.tag_wrapper({"endpoint": "/work"}):
                body = {"sum": sum(number * number for number in range(15_000))}
        else:
            with open("/proc/self/statm") as statm:
                resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            body = {"resident_bytes": resident, "stats": spanprof.stats()}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """No log: terminal output would add latency."""


def main():
    receiver = sys.argv[1]
    spanprof.start(service_name="live-outage", endpoint=f"http://127.0.0.1:{receiver}", upload_interval=1, timeout=2)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
