"""Uses CPU time in threads, waits, forks and labels its work, once before and once after the mark `later`.

    program.py bare|profiled

The profiled run is configured by environment variables. A mark is the name of a missing file, which appears in the trace.
"""

import os
import sys
import threading
import time

PROFILED = sys.argv[1] == "profiled"
if PROFILED:
    import spanprof


def mark(name):
    os.path.exists("/system-calls/" + name)


def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(500))


def child():
    pid = os.fork()
    if pid == 0:
        burn(0.1)
        os._exit(0)
    os.waitpid(pid, 0)


def work():
    threads = [threading.Thread(target=burn, args=(0.2,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(0.1)
    burn(0.2)
    child()


def rounds():
    for _ in range(3):
        if PROFILED:
            with spanprof.tag_wrapper(route="/cart"):
                work()
        else:
            work()
    if PROFILED:
        assert spanprof.flush(20), spanprof.stats()


if PROFILED:
    assert spanprof.start()
rounds()
mark("later")
rounds()
if PROFILED:
    assert spanprof.stop(), spanprof.stats()
