"""An RQ worker and its jobs. spanprof starts in the worker, or in each work horse, selected by `FIELD_START`."""

import os
import sys

import profiled
from redis import Redis
from rq import Queue, Worker

#: The name of the queue, which the worker and the cell share.
QUEUE = "field"


def connection():
    return Redis(unix_socket_path=os.environ["FIELD_REDIS_SOCKET"])


def queue():
    return Queue(QUEUE, connection=connection())


def work():
    """Common to all jobs: the CPU time of each."""
    if os.environ["FIELD_START"] == "horse":
        profiled.start()
    profiled.field_work(0.05)


def total(numbers):
    work()
    return sum(numbers)


def fails():
    work()
    raise ValueError("the job's own error")


def ends(code):
    """Ends the work horse itself: RQ counts the job as failed."""
    work()
    os._exit(code)


if __name__ == "__main__":
    if os.environ["FIELD_START"] == "worker":
        profiled.start()
    # `burst`: ends when the queue is empty.
    sys.exit(not Worker([QUEUE], connection=connection()).work(burst=True))
