"""Forks while eight threads are sampled at 1 kHz. Each child must profile itself and end; none may hang."""

import os
import sys
import threading
import time

import hung
import spanprof
import suite

#: A child that sleeps this long is hung. It needs less than a second, but may wait for a processor.
IDLE_SECONDS = 30
#: A child that runs this long is hung. It needs a tenth of a second.
RUN_SECONDS = 5


def work(stop):
    while not stop.is_set():
        sum(range(2000))
        time.sleep(0.001)


def child():
    """Exit code 0 when this process sampled itself, 3 when it did not."""
    began = time.thread_time()
    while time.thread_time() - began < 0.03:
        sum(range(500))
    # Samples are counted when the drain thread takes them from the ring, which a flush makes it do.
    spanprof.flush(5)
    os._exit(0 if spanprof.stats()["samples.cpu"] > 0 else 3)


def wait(pid):
    detector = hung.HangDetector(pid, IDLE_SECONDS, RUN_SECONDS)
    while not detector.is_hung():
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        time.sleep(0.001)
    print(hung.describe(pid), file=sys.stderr, flush=True)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hang"


def main():
    clock, forks = suite.arguments()
    suite.watch(forks)
    suite.start(clock, 1000)
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    ends = {}
    for _ in range(forks):
        pid = os.fork()
        if pid == 0:
            child()
        end = wait(pid)
        ends[end] = ends.get(end, 0) + 1
    stop.set()
    for thread in threads:
        thread.join()
    spanprof.stop()
    print(f"{forks} forks: {ends.get(0, 0)} children sampled themselves, {ends.get(3, 0)} did not")
    if set(ends) - {0, 3}:
        sys.exit(f"children crashed or hung: {ends}")
    if ends.get(0, 0) < 0.99 * forks:
        sys.exit(f"fewer than 99 % of the children sampled themselves: {ends}")


if __name__ == "__main__":
    main()
