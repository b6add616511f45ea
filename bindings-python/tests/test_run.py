"""``spanprof run`` and the command line: an unmodified program behaves as under plain Python, and is profiled."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from spanprof import run
from spanprof.native import native

RUN = [sys.executable, "-m", "spanprof", "run"]

PROGRAM = """
import os, sys, time, threading, __main__

def main_work():
    start = time.thread_time()
    while time.thread_time() - start < 0.4:
        sum(range(500))

if __name__ == "__main__":
    print(sys.argv[1:], os.path.basename(sys.argv[0]), os.path.basename(__file__), __name__)
    print(sys.argv[0], __file__, main_work.__code__.co_filename, sys.excepthook is sys.__excepthook__)
    print(os.path.isdir(sys.path[0]), __spec__, __package__, sys.modules["__main__"].main_work is main_work)
    main_work()
    sys.exit(3)
"""


def test_a_program_runs_as_under_python_and_is_profiled(run_target):
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
            start = time.thread_time()
            while time.thread_time() - start < 0.3:
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


@pytest.mark.parametrize(
    "source",
    ["def f():\n    1 / 0\nf()", "raise KeyboardInterrupt", "import missing_module", "x = = 1", "raise ValueError from KeyError()"],
)
@pytest.mark.parametrize("way", [["target.py"], ["-m", "target"]])
def test_a_traceback_and_an_exit_code_are_those_of_python(tmp_path, source, way):
    (tmp_path / "target.py").write_text(source)

    def done(*command: str) -> tuple[int, list[str]]:
        ran = subprocess.run([*command, *way], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "SPANPROF_DISABLED": "1"})
        # Without the line of the launcher, which precedes those of the program.
        lines = [line for line in ran.stderr.splitlines() if not line.startswith("spanprof run: not profiled: disabled by")]
        return ran.returncode, lines

    assert done(*RUN) == done(sys.executable)


@pytest.mark.parametrize("way", ["/dev/stdin", "-", "/dev/fd/0"])
def test_a_program_read_from_a_pipe_runs(way):
    source = "import sys, time\nprint('ran', sys.argv[0], __name__)\nassert not sys.stdin.read()\nsys.exit(7)\n"
    environment = {**os.environ, "SPANPROF_DISABLED": "1"}
    ran = subprocess.run([*RUN, way, "a"], input=source, capture_output=True, text=True, env=environment)
    assert (ran.returncode, ran.stdout) == (7, f"ran {way} __main__\n"), ran.stderr


def test_a_program_that_starts_the_profiler_itself_runs_unchanged(run_target):
    run_target("import spanprof\nassert spanprof.start(sample_rate=50) is True\n", command=RUN)


def outcome_of(target):
    lines = [line for line in target.stderr.splitlines() if "spanprof" in line]
    assert len(lines) == 1, target.stderr
    return lines[0]


def test_the_outcome_is_one_line_on_standard_error(run_target):
    line = outcome_of(run_target(PROGRAM, command=RUN, expect=3))
    assert line.startswith("spanprof: stopped after ") and " samples, clock " in line and re.search(r"; \d+ files? delivered to ", line)


def test_the_outcome_without_a_receiver_is_one_line_with_the_reason(run_target):
    dead = {"SPANPROF_FILE_DIRECTORY": "", "SPANPROF_ENDPOINT": "http://127.0.0.1:1"}
    line = outcome_of(run_target(PROGRAM, command=RUN, expect=3, **dead))
    assert "nothing delivered to http://127.0.0.1:1" in line and "cannot connect" in line


def test_a_program_without_run_warns_that_nothing_arrived(run_target):
    dead = {"SPANPROF_FILE_DIRECTORY": "", "SPANPROF_ENDPOINT": "http://127.0.0.1:1"}
    line = outcome_of(run_target("import spanprof\nspanprof.start()\n" + PROGRAM, expect=3, **dead))
    assert line.startswith("spanprof: stopped after ") and "nothing delivered" in line


def test_a_program_that_is_switched_off_is_reported_too(run_target):
    line = outcome_of(run_target(PROGRAM, command=RUN, expect=3, SPANPROF_DISABLED="1"))
    assert line == "spanprof run: not profiled: disabled by SPANPROF_DISABLED"


def test_output_writes_a_flame_graph_without_a_receiver(run_target, tmp_path):
    for option in (["-o", "flame.html"], ["-oflame.html"], ["--output=flame.html"]):
        (tmp_path / "flame.html").unlink(missing_ok=True)
        line = outcome_of(run_target(PROGRAM, command=[*RUN, *option], expect=3, SPANPROF_FILE_DIRECTORY=""))
        assert line.endswith(f"{tmp_path / 'flame.html'} written"), line
        assert "main_work" in (tmp_path / "flame.html").read_text()


def test_an_invalid_configuration_is_reported_and_the_program_runs(run_target):
    target = run_target("print('ran')", command=[*RUN, "--sample-rate=0"])
    assert target.stdout.strip() == "ran"
    assert target.stderr.startswith("spanprof run: not profiled: sample_rate (code) must lie between 1 and 10000 Hz")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no program"),
        (["-o"], "-o flame.html"),
        (["missing.py"], "missing.py"),
        (["--sample-rate", "x.py"], "needs a value"),
        (["-x", "x.py"], "unknown option"),
    ],
)
def test_an_invalid_command_line_reports_the_expected_form(arguments, words):
    done = subprocess.run([*RUN, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert words in done.stderr and "spanprof run" in done.stderr


def test_every_other_command_is_the_native_command_line(tmp_path):
    def command(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-m", "spanprof", *arguments], capture_output=True, text=True)

    help_text = command("--help").stdout
    assert all(verb in help_text for verb in ("run", "serve", "top", "flamegraph", "convert", "check"))
    for verb in ("run", "demo", "top"):
        assert f"\n\nUsage: spanprof {verb} " in command(verb, "--help").stdout
    assert command("--version").stdout.startswith("spanprof ")
    assert command("nonsense").returncode == 2


def test_the_help_has_each_key_under_one_heading_and_wraps_to_the_terminal():
    keys = native.config_keys()
    plain = run._help(keys, 0)
    listed = plain[plain.index("configuration.md") :].split()
    assert [listed.count(name.replace("_", "-")) for name, _, _ in keys] == [1] * len(keys)
    assert all(f"\n  {heading}: " in plain for heading in run._GROUPS)
    assert plain.index("CPU and wall-clock samples:") < plain.index(" cpu ") < plain.index("Limits of the cost:")
    assert plain.index("Limits of the cost:") < plain.index("cpu-budget")
    wrapped = run._help(keys, 80)
    assert max(len(line) for line in wrapped.splitlines()) <= 80 and wrapped.count("\n") < 60
    assert wrapped.split() == plain.split()


@pytest.mark.parametrize("arguments", [["run", "--help"], ["--help"]])
def test_help_into_a_closed_pipe_ends_without_an_error_message(arguments):
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
