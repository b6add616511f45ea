"""``spanprof run`` and the command line: an unmodified program behaves as under plain Python, and is profiled."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

RUN = [sys.executable, "-m", "spanprof", "run"]

PROGRAM = """
import os, sys, time, threading, __main__

def main_work():
    start = time.thread_time()
    while time.thread_time() - start < 0.4:
        sum(range(500))

if __name__ == "__main__":
    print(sys.argv[1:], os.path.basename(sys.argv[0]), os.path.basename(__file__), __name__)
    print(os.path.isdir(sys.path[0]), __spec__, __package__, sys.modules["__main__"].main_work is main_work)
    main_work()
    sys.exit(3)
"""


def test_a_program_sees_what_it_sees_under_python_and_is_profiled(run_target):
    plain = run_target(PROGRAM, "a", "--b", expect=3)
    assert not plain.profiles().files
    ran = run_target(PROGRAM, "a", "--b", command=RUN, expect=3)
    assert ran.stdout == plain.stdout
    assert ran.profiles().by_leaf()["main_work"] == pytest.approx(0.4e9, rel=0.25)
    assert ran.profiles().samples[0].labels["service.name"] == "target"


def test_options_are_configuration_keys(run_target):
    target = run_target(PROGRAM, command=[*RUN, "--sample-rate=250", "--service-name=shop"], expect=3)
    assert target.profiles().files[0].period == 4_000_000
    assert target.profiles().samples[0].labels["service.name"] == "shop"


def test_a_module_runs_as_with_dash_m(run_target, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(PROGRAM.replace("__main__\n\ndef", "__main__\nfrom . import other\n\ndef"))
    (package / "other.py").write_text("")
    plain = subprocess.run([sys.executable, "-m", "package", "x"], cwd=tmp_path, capture_output=True, text=True)
    ran = subprocess.run([*RUN, "--enabled=false", "-m", "package", "x"], cwd=tmp_path, capture_output=True, text=True)
    assert plain.returncode == ran.returncode == 3, plain.stderr + ran.stderr
    assert ran.stdout.splitlines()[0] == plain.stdout.splitlines()[0]
    profiled = run_target("", "package", "x", command=[*RUN, "-m", "package"], expect=3)
    assert profiled.profiles().through("main_work")


def test_threads_pickles_and_spawned_children_of_the_program_find_its_main_module(run_target):
    target = run_target(
        """
        import multiprocessing, pickle, threading, time

        class Thing:
            def __init__(self):
                self.value = 5

        def child(thing):
            start = time.process_time()
            while time.process_time() - start < 0.3:
                sum(range(500))
            assert thing.value == 5

        def late():
            time.sleep(0.3)
            assert pickle.loads(pickle.dumps(Thing())).value == 5
            print("late thread done")

        if __name__ == "__main__":
            process = multiprocessing.get_context("spawn").Process(target=child, args=(Thing(),))
            process.start()
            process.join()
            assert process.exitcode == 0
            threading.Thread(target=late).start()
        """,
        command=RUN,
    )
    assert target.stdout.strip() == "late thread done"
    assert target.profiles().through("child")


def test_a_traceback_of_the_program_is_printed_and_the_last_window_sent(run_target):
    target = run_target(PROGRAM.replace("sys.exit(3)", "raise KeyError('mine')"), command=RUN, expect=1)
    assert "KeyError: 'mine'" in target.stderr
    assert target.profiles().through("main_work")


def test_a_program_that_starts_the_profiler_itself_runs_unchanged(run_target):
    run_target("import spanprof\nassert spanprof.start(sample_rate=50) is True\n", command=RUN)


def test_a_configuration_that_cannot_work_is_said_and_the_program_runs(run_target):
    target = run_target("print('ran')", command=[*RUN, "--sample-rate=0"])
    assert target.stdout.strip() == "ran"
    assert "sample_rate" in target.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no program"),
        (["missing.py"], "missing.py"),
        (["--sample-rate", "x.py"], "needs a value"),
        (["-x", "x.py"], "unknown option"),
    ],
)
def test_a_command_line_that_cannot_be_understood_says_what_was_expected(arguments, words):
    done = subprocess.run([*RUN, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert words in done.stderr and "spanprof run" in done.stderr


def test_every_other_verb_is_the_native_command_line(tmp_path):
    def command(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-m", "spanprof", *arguments], capture_output=True, text=True)

    help_text = command("--help").stdout
    assert all(verb in help_text for verb in ("run", "serve", "top", "flamegraph", "convert", "check"))
    assert "--key=value" in command("run", "--help").stdout.lower()
    assert command("--version").stdout.startswith("spanprof ")
    assert command("nonsense").returncode == 2


@pytest.mark.parametrize("arguments", [["run", "--help"], ["--help"]])
def test_help_for_a_reader_who_went_away_ends_in_silence(arguments):
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run([sys.executable, "-m", "spanprof", *arguments], stdout=write_end, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write_end)
    assert done.stderr == ""


def test_the_files_of_a_run_are_read_by_the_command_line(run_target, tmp_path):
    target = run_target(PROGRAM, command=RUN, expect=3)
    top = subprocess.run(
        [sys.executable, "-m", "spanprof", "top", str(target.directory)], capture_output=True, text=True, check=True
    )
    assert "main_work" in top.stdout
