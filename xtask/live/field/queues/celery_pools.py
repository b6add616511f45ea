"""Celery: every task of a pool returns its sum, no worker process dies, and the profiles contain the task.

    celery_pools.py prefork|threads|gevent main|worker_process_init
"""

import os
import re
import sys

import field

TASKS = 40
WORKERS = 2
#: Lines of a worker that lost a child process.
LOST = re.compile(r"exited with|WorkerLostError|exitcode|Traceback", re.IGNORECASE)


def work(pool, profiles):
    """Sums, worker processes, exit code and log of one worker that ran all tasks."""
    data = field.folder()
    for name in ("results", "queue", "control"):
        os.mkdir(f"{data}/{name}")
    os.environ["FIELD_BROKER"] = data
    words = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--pool", pool]
    words += ["--concurrency", str(WORKERS), "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    with field.Server(words, profiles, FIELD_BROKER=data) as server:
        field.wait_until(lambda: "ready." in server.log() or server.process.poll() is not None, 90, "the start of the worker")
        field.expect(server.process.poll() is None, f"the worker ended with {server.process.poll()}\n{server.log()}")
        before = field.children(server.process.pid)
        # A new application per run: its broker is another directory.
        sys.modules.pop("celery_app", None)
        import celery_app

        answers = [celery_app.total.delay([n, n + 1, n + 2]) for n in range(TASKS)]
        try:
            results = [answer.get(timeout=60) for answer in answers]
        except Exception as error:
            raise field.CellFailure(f"a task failed: {error!r}\n{server.log()}") from error
        after = field.children(server.process.pid)
        code = server.end()
        return [total for total, _ in results], (before, after), code, server.log()


def main(pool, where):
    os.environ["FIELD_START"] = where
    reference, _, expected_code, expected_log = work(pool, None)
    profiles = field.folder()
    sums, (before, after), code, log = work(pool, profiles)
    lost = [line for line in log.splitlines() if LOST.search(line)]
    field.expect(not lost, f"{len(lost)} lines about lost workers\n{log}")
    field.expect(before == after, f"worker processes changed from {before} to {after}\n{log}")
    field.expect(sums == reference, f"sums are {sums}, expected {reference}")
    field.expect(code == expected_code, f"ended with {code}, expected {expected_code}\n{log}")
    field.expect_no_other_lines(log, expected_log)
    count = field.expect_samples(profiles, 20)
    return f"{TASKS} tasks, 0 of {len(before)} worker processes lost, {count} samples of the task"


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    field.cell(main)
