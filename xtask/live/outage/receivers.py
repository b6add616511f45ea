"""Unavailable receivers of several kinds on a port of the loopback."""

import contextlib
import socket
import struct
import threading


@contextlib.contextmanager
def refused(_port):
    """The port is closed."""
    yield


@contextlib.contextmanager
def swallowed(port):
    """Connections stay half-open: the backlog is full and nothing accepts."""
    with listener(port, 0) as server:
        fillers = []
        for _ in range(8):
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(server.getsockname())
            fillers.append(filler)
        yield
        for filler in fillers:
            filler.close()


@contextlib.contextmanager
def never_answering(port):
    """Accepts connections, reads, and never responds."""
    with serving(port, lambda connection: drain(connection)):
        yield


@contextlib.contextmanager
def resetting(port):
    """Reads a part of the request, then resets the connection."""

    def reset(connection):
        connection.recv(200)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    with serving(port, reset):
        yield


def drain(connection):
    with contextlib.suppress(OSError):
        while connection.recv(65_536):
            pass


def listener(port, backlog):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(backlog)
    return server


@contextlib.contextmanager
def serving(port, answer):
    with listener(port, 64) as server:
        connections = []

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connections.append(connection)
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            connection.close()


MODES = {"refused": refused, "swallowed": swallowed, "never-answering": never_answering, "resetting": resetting}
