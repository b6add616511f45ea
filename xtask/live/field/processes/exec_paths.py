"""Programs that are replaced while they are sampled at 1000 Hz: each new program must end with its own exit code.

    exec_paths.py execv|wall|spawnlp|fork_exec|posix_spawn|subprocess CLOCK COUNT

`execv` and `wall` start the profiler in a new process per round. The others start programs from one profiled process.
"""

import os
import select
import struct
import subprocess
import sys
import threading

import field
import profiled

#: Exit code of the new program.
OWN_CODE = 7
PROGRAM = ["/bin/sh", "-c", f"exit {OWN_CODE}"]
#: Concurrent rounds.
PARALLEL = 2
#: CPU time before the program is replaced, in seconds: some samples are pending at any time.
BURNED = 0.008


def execv(report):
    """The body of a new child: starts, uses CPU time in two threads, and calls exec."""
    import spanprof

    profiled.start()
    threading.Thread(target=profiled.field_work, args=(60,), daemon=True).start()
    profiled.field_work(BURNED)
    os.write(report, struct.pack("q", spanprof.stats()["samples.cpu"]))
    os.execv(PROGRAM[0], PROGRAM)


def fresh_processes(count):
    """Wait statuses of `count` children that called `execv`, and the samples that they had taken."""
    reports, report = os.pipe()
    statuses, samples = [], 0
    for number in range(count + PARALLEL):
        if number >= PARALLEL:
            statuses.append(os.waitpid(-1, 0)[1])
            samples += sum(struct.unpack("q", os.read(reports, 8))) if reported(reports) else 0
        if number < count and os.fork() == 0:
            try:
                execv(report)
            finally:
                os._exit(99)
    return statuses, samples


def reported(pipe):
    return bool(select.select([pipe], [], [], 0)[0])


def fork_exec():
    pid = os.fork()
    if pid == 0:
        try:
            profiled.field_work(BURNED)
            os.execv(PROGRAM[0], PROGRAM)
        finally:
            os._exit(99)
    return os.waitpid(pid, 0)[1]


#: Each starts a program and returns its wait status.
FROM_ONE_PROCESS = {
    "spawnlp": lambda: as_status(os.spawnlp(os.P_WAIT, "sh", *PROGRAM)),
    "fork_exec": fork_exec,
    "posix_spawn": lambda: os.waitpid(os.posix_spawn(PROGRAM[0], PROGRAM, os.environ), 0)[1],
    "subprocess": lambda: as_status(subprocess.run(PROGRAM, check=False).returncode),
}


def as_status(code):
    """A wait status from the exit code that Python returns; a signal is negative there."""
    return -code if code < 0 else code << 8


def one_process(path, count):
    """Wait statuses of `count` programs that two threads of a profiled process started, and its samples."""
    import spanprof

    profiled.start()
    statuses = []

    def rounds():
        for _ in range(count // PARALLEL):
            profiled.field_work(BURNED)
            statuses.append(FROM_ONE_PROCESS[path]())

    threads = [threading.Thread(target=rounds) for _ in range(PARALLEL)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    samples = spanprof.stats()["samples.cpu"]
    spanprof.stop()
    return statuses, samples


def main(path, clock, count):
    count = int(count)
    os.environ.update({profiled.PROFILES: field.folder(), profiled.CLOCK: clock, "SPANPROF_SAMPLE_RATE": "1000"})
    if path == "wall":
        os.environ["SPANPROF_WALL"] = "true"
    started = field.run([sys.executable, "-c", "import profiled, sys; sys.exit(not profiled.start())"], os.environ[profiled.PROFILES])
    if started.code != 0:
        raise field.Skip(f"no clock {clock} on this machine: {started.stderr}")
    statuses, samples = one_process(path, count) if path in FROM_ONE_PROCESS else fresh_processes(count)
    ends = {status: statuses.count(status) for status in set(statuses)}
    named = {f"signal {status & 127}" if status & 127 else f"exit {status >> 8}": n for status, n in ends.items()}
    field.expect(len(statuses) == count, f"{len(statuses)} of {count} programs ended")
    field.expect(ends == {OWN_CODE << 8: count}, f"expected exit {OWN_CODE} of {count} programs, got {named}")
    # The drain thread counts a sample up to 100 ms after it was taken; most processes are replaced before.
    field.expect(samples > 0, f"no samples before {count} programs were replaced: nothing was tested")
    return f"0 deaths of {count} ({samples} samples counted before the calls)"


if __name__ == "__main__":
    field.cell(main)
