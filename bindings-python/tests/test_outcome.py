"""The line at the end of a run: on standard error once, unless the program's logging decides."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

RUNS = """
import spanprof, sys, time
{before}
spanprof.start()
until = time.thread_time() + 0.1
while time.thread_time() < until:
    pass
{after}
"""
LINE = r"spanprof: stopped after [^\n]* delivered to [^\n]*\n"


def test_a_program_without_logging_prints_one_line_at_its_end(run_target):
    target = run_target(RUNS.format(before="", after="assert 'logging' not in sys.modules"))
    assert re.fullmatch(LINE, target.stderr), target.stderr
    assert target.stdout == ""


def test_a_program_that_logs_warnings_only_prints_it_too(run_target):
    target = run_target(RUNS.format(before="import logging; logging.basicConfig()", after="spanprof.stop()"))
    assert re.fullmatch(LINE, target.stderr), target.stderr


def test_a_program_that_logs_information_logs_it(run_target):
    before = "import logging; logging.basicConfig(level=logging.INFO)"
    target = run_target(RUNS.format(before=before, after="spanprof.stop()"))
    assert [line for line in target.stderr.splitlines() if "stopped after" in line and line.startswith("INFO:spanprof:")]
    assert target.stderr.count("stopped after") == 1, target.stderr


@pytest.mark.parametrize("decision", ["setLevel(logging.WARNING)", "addHandler(logging.NullHandler())"])
def test_a_level_or_a_handler_of_the_logger_hides_it(run_target, decision):
    before = f"import logging; logging.getLogger('spanprof').{decision}"
    assert run_target(RUNS.format(before=before, after="spanprof.stop()")).stderr == ""


def test_a_forked_child_prints_none(run_target):
    after = "import os\nif os.fork() == 0:\n    spanprof.stop()\n    os._exit(0)\nos.wait()"
    target = run_target(RUNS.format(before="import warnings; warnings.simplefilter('ignore')", after=after))
    assert re.fullmatch(LINE, target.stderr), target.stderr


@pytest.mark.parametrize("is_logging", [False, True])
@pytest.mark.parametrize("closing", ["at the beginning", "by the program"])
def test_a_file_that_has_the_number_of_standard_error_gets_no_line(run_target, closing, is_logging):
    before = "import logging\n" * is_logging + ("import os; os.close(2)\n" if closing == "by the program" else "")
    before += "file = open('data', 'w'); assert file.fileno() == 2; import spanprof.errors"
    after = "spanprof.start(); spanprof.stop(); assert open('data').read() == '', open('data').read()"
    closed = ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh"] if closing == "at the beginning" else []
    target = run_target(RUNS.format(before=before, after=after), command=[*closed, sys.executable])
    assert target.stdout == ""


def test_run_opens_the_file_in_a_browser_after_it_is_written(run_target, tmp_path):
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}; head -c 15 "${{1#file://}}" >> {seen}\n')
    browser.chmod(0o755)
    run = [sys.executable, "-m", "spanprof", "run", "-o", "flame.html", "--open"]
    run_target("sum(range(1000000))", command=run, BROWSER=f"{browser} %s", DISPLAY=":9")
    assert seen.read_text() == f"file://{tmp_path}/flame.html\n<!doctype html>"


def test_run_names_the_file_where_there_is_no_browser(run_target, tmp_path):
    run = [sys.executable, "-m", "spanprof", "run", "-o", "flame.html", "--open"]
    target = run_target("sum(range(1000000))", command=run, DISPLAY="", WAYLAND_DISPLAY="")
    assert f"no browser was found; open file://{tmp_path}/flame.html" in target.stderr


def test_run_refuses_to_open_a_file_that_no_browser_shows():
    words = [sys.executable, "-m", "spanprof", "run", "--open", "-o", "run.pb.gz", "app.py"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2 and "`--open` needs `-o flame.html`" in done.stderr


def test_run_without_standard_error_writes_nothing_to_standard_output(run_target):
    closed = ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "spanprof", "run"]
    assert run_target("print('its own')", command=closed, SPANPROF_DISABLED="1").stdout == "its own\n"
