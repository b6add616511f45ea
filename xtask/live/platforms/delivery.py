"""Delivery over TLS to a real receiver (`spanprof serve` behind a proxy that ends TLS): runs a program once over HTTP and once over
gRPC, and finds a function of it in what was received.

    delivery.py SPANPROF DIRECTORY FUNCTION PROGRAM ARGUMENT…

`DIRECTORY` gets the certificate and what was received.
"""

import json
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import threading

spanprof, directory, function, *program = sys.argv[1:]
directory = pathlib.Path(directory).absolute()
directory.mkdir(parents=True, exist_ok=True)


def forward(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve_tls(listener, context, port):
    while True:
        connection, _ = listener.accept()
        try:
            client = context.wrap_socket(connection, server_side=True)
        except OSError as error:
            print(f"delivery: no TLS: {error}", file=sys.stderr)
            continue
        server = socket.create_connection(("127.0.0.1", port))
        for pair in ((client, server), (server, client)):
            threading.Thread(target=forward, args=pair, daemon=True).start()


key, request = directory / "key.pem", ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
# An authority's certificate is refused as that of a server.
extensions = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
files = ["-keyout", key, "-out", directory / "certificate.pem"]
subprocess.run([*request, "-days", "2", "-subj", "/CN=localhost", *extensions, *files], check=True, capture_output=True)
for protocol in ("http/protobuf", "grpc"):
    received = directory / protocol.replace("/", "-")
    command = [spanprof, "serve", "--grpc", "0", "--http", "0", "--dir", received, "--json", "--quiet"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = json.loads(server.stdout.readline())["url"].rstrip("/")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "certificate.pem", key)
        context.set_alpn_protocols(["h2"] if protocol == "grpc" else ["http/1.1"])
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=serve_tls, args=(listener, context, int(url.rsplit(":", 1)[1])), daemon=True).start()
        settings = {
            "SPANPROF_ENDPOINT": f"https://127.0.0.1:{listener.getsockname()[1]}",
            "SPANPROF_PROTOCOL": protocol,
            "SPANPROF_CERTIFICATE": str(directory / "certificate.pem"),
        }
        subprocess.run(program, env={**os.environ, **settings}, check=True, timeout=180)
        table = subprocess.run([spanprof, "top", url, "-n", "0", "--type", "cpu"], capture_output=True, text=True, timeout=60)
        if function not in table.stdout:
            sys.exit(f"delivery: expected `{function}` by {protocol}, got:\n{table.stdout}{table.stderr}")
        print(f"delivered by {protocol} over TLS")
    finally:
        server.terminate()
        server.wait(10)
