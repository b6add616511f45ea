"""Programs that fork; one kind per run. Their output is independent of times and process ids."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import profiled


def total(number):
    profiled.field_work(0.05)
    return sum(range(number))


def pool():
    """`with multiprocessing.Pool`, which terminates its workers at the end of the block."""
    with multiprocessing.get_context("fork").Pool(2) as workers:
        print(workers.map(total, range(1000, 1020), chunksize=1))


def daemon():
    """A program that leaves its terminal by a double fork and closes every descriptor. The first process waits for its result."""
    result, report = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        for number in set(range(3, 1024)) - {report}:
            try:
                os.close(number)
            except OSError:
                pass
        # The clock was among the descriptors: the profiler creates another after some missed ticks.
        profiled.field_work(1.5)
        os.write(report, str(total(5000)).encode())
        # As at the exit of Python: the profiler delivers the last window.
        sys.exit(0)
    os.wait()
    os.close(report)
    print(os.read(result, 100))
    time.sleep(2)


def task_runner():
    """As Airflow's: a supervisor forks, the child forks a task that becomes a program, and the supervisor reaps by group."""
    for number in range(4):
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            profiled.field_work(0.05)
            code = subprocess.run(["/bin/sh", "-c", f"exit {number}"], check=False).returncode
            os._exit(code)
        _, status = os.waitpid(child, 0)
        print(number, os.waitstatus_to_exitcode(status), total(number))
    task = os.fork()
    if task == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        profiled.field_work(60)
    time.sleep(0.2)
    os.kill(task, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(task, 0)[1]))
    profiled.field_work(0.2)


def data_loader():
    """As PyTorch's: workers put C handlers over SIGSEGV, SIGBUS and SIGFPE, and the main process one over SIGCHLD."""
    ended = []
    signal.signal(signal.SIGCHLD, lambda *_: ended.append(1))
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=loader, args=(results, number)) for number in range(2)]
    for worker in workers:
        worker.start()
    print(sorted(results.get() for _ in range(20)))
    for worker in workers:
        worker.join()
    print([worker.exitcode for worker in workers], len(ended) > 0)


def loader(results, number):
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    die = ctypes.cast(libc._exit, ctypes.c_void_p)
    for fault in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE):
        libc.signal(fault, die)
    for at in range(10):
        results.put(total(number * 100 + at))


def children():
    """Children one after another, beyond the first window, in a program without logging: each ends like a Python process."""
    codes = []
    for number in range(60):
        child = os.fork()
        if child == 0:
            profiled.field_work(0.02)
            sys.exit(number % 7)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(codes)


def pid1():
    """Process 1 of a container: signals without a handler do not reach it, orphans become its children."""
    print(os.getpid())
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.2)
            os._exit(5)
        os._exit(4)
    codes = sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2))
    profiled.field_work(0.5)
    print(codes, total(3000))


if __name__ == "__main__":
    profiled.start()
    kinds = {"pool": pool, "daemon": daemon, "task-runner": task_runner, "data-loader": data_loader, "pid1": pid1}
    {**kinds, "children": children}[sys.argv[1]]()
