"""Thirty threads that use CPU time, each under a label of its own. The argument is the directory of the profiles (`check_threads.py`)."""

import sys
import threading
import time

import spanprof


def work(seconds):
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        sum(range(500))


def run(number):
    with spanprof.tag_wrapper({"thread": str(number)}):
        work(0.2)


spanprof.start(service_name="threads", destinations=[{"type": "file", "directory": sys.argv[1]}])
threads = [threading.Thread(target=run, args=(number,)) for number in range(30)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
spanprof.stop()
