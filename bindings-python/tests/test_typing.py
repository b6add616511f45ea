"""The package under type checkers: precise types, and every configuration key by its name."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
import textwrap

import pytest
import spanprof
from spanprof import _spanprof as native

PACKAGE = pathlib.Path(spanprof.__file__).parent


def checked(tmp_path: pathlib.Path, source: str) -> str:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(source))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=100,
    )
    return done.stdout + done.stderr


def test_a_correct_program_has_no_errors_under_strict(tmp_path):
    answer = checked(
        tmp_path,
        """
        import spanprof
        from spanprof import pyroscope

        started: bool = spanprof.start(service_name="shop", sample_rate=250, wall=True, tags={"team": "blue"})

        with spanprof.tag_wrapper({"endpoint": "/cart", "attempt": 2}):
            pass
        with spanprof.tag_wrapper(endpoint="/cart"):
            pass

        async def request() -> None:
            async with spanprof.tag_wrapper({"a": "1"}):
                pass

        @spanprof.tag_wrapper({"job": "nightly"})
        def nightly(count: int) -> str:
            return str(count)

        text: str = spanprof.bind(nightly)(3)
        with spanprof.tag_wrapper(spanprof.Labels({"endpoint": "/cart"}), attempt=2):
            running: bool = spanprof.is_running()
        spanprof.update(sample_rate=100)
        stopped: bool = spanprof.stop() and spanprof.flush(1.0) and pyroscope.shutdown()
        pyroscope.configure("shop", server_address="http://localhost:4040", oncpu=True)
        """,
    )
    assert answer == ""


@pytest.mark.parametrize(
    "line",
    [
        "spanprof.start(sample_rat=100)",
        'spanprof.start(sample_rate="fast")',
        "spanprof.tag_wrapper(5)",
        "spanprof.flush('now')",
        "text: str = spanprof.stop()",
        "text: str = spanprof.tag_wrapper({})(len)([])",
    ],
)
def test_an_incorrect_program_has_errors(tmp_path, line):
    assert "error:" in checked(tmp_path, f"import spanprof\n{line}\n")


def test_the_options_name_every_key_of_the_configuration():
    tree = ast.parse((PACKAGE / "options.py").read_text())
    options = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Options")
    named = {node.target.id for node in options.body if isinstance(node, ast.AnnAssign)}
    assert {key for key, *_ in native.config_keys()} <= named
