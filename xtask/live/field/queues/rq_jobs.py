"""RQ: every job ends as without spanprof, in its own work horse, and the profiles contain the jobs.

    rq_jobs.py worker|horse
"""

import os
import sys

import field

JOBS = 40


def redis():
    """Command of a Redis that listens only on a Unix domain socket."""
    program, libraries = os.environ["FIELD_REDIS"], os.environ.get("FIELD_REDIS_LIBRARIES")
    environment = ["env", f"LD_LIBRARY_PATH={libraries}"] if libraries else []
    socket = os.environ["FIELD_REDIS_SOCKET"]
    return [*environment, program, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]


def outcome(job):
    """Status and result of a job, or the last line about its failure: the exception, or the exit of the work horse."""
    failure = (job.latest_result().exc_string or "").strip().splitlines()
    return job.get_status(refresh=True).value, failure[-1] if failure else job.return_value()


def work(profiles):
    """Outcomes of the jobs, and the worker that ran all of them."""
    data = field.folder()
    os.environ["FIELD_REDIS_SOCKET"] = socket = os.path.join(data, "redis.sock")
    with field.Server(redis()) as server:
        field.wait_until(lambda: os.path.exists(socket) or server.process.poll() is not None, 30, "the start of Redis")
        field.expect(server.process.poll() is None, f"Redis ended with {server.process.poll()}\n{server.log()}")
        import rq_app

        queue = rq_app.queue()
        jobs = [queue.enqueue("rq_app.total", [n, n + 1, n + 2]) for n in range(JOBS)]
        jobs += [queue.enqueue("rq_app.fails"), queue.enqueue("rq_app.ends", 3)]
        ended = field.run([sys.executable, os.path.join(field.HERE, "queues/rq_app.py")], profiles)
        return [outcome(job) for job in jobs], ended


def main(where):
    os.environ["FIELD_START"] = where
    expected, reference = work(None)
    statuses = [status for status, _ in expected]
    field.expect(statuses == ["finished"] * JOBS + ["failed"] * 2, f"without spanprof jobs are {expected}\n{reference}")
    profiles = field.folder()
    results, ours = work(profiles)
    described = f"without spanprof:\n{reference}\nwith spanprof:\n{ours}"
    field.expect(results == expected, f"jobs are {results}, expected {expected}\n{described}")
    field.expect(ours.code == reference.code, f"ended with {ours.code}, expected {reference.code}\n{described}")
    # RQ logs to both.
    field.expect_no_other_lines(ours.stdout + ours.stderr, reference.stdout + reference.stderr)
    # Each job uses 50 ms; every work horse delivers its last window.
    count = field.expect_samples(profiles, (JOBS + 2) * 5 // 2)
    return f"{len(results)} jobs in work horses, outcomes equal, exit {ours.code}, {count} samples of the jobs"


if __name__ == "__main__":
    field.cell(main)
