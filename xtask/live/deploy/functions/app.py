"""A function of Lambda: CPU time in `lambda_work`, then a wait. Responds with the CPU time that it used, its clock and its thread."""

import threading
import time


def lambda_work(seconds):
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        sum(range(500))
    return time.thread_time() - began


def lambda_wait(seconds):
    time.sleep(seconds)


def handler(event, context):
    used = lambda_work(event["work"])
    lambda_wait(event["wait"])
    thread = threading.get_native_id()
    return {"order": event["order"], "used": used, "clock": time.monotonic(), "thread": thread, "request": context.aws_request_id}
