"""Runs the conformance suite for Python: the cases of ``core/conformance`` through this package's API."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import typing

import pytest
import spanprof
import yaml
from spanprof import _spanprof as native
from spanprof import pyroscope

SUITE = pathlib.Path(__file__).parents[2] / "core" / "conformance"
CASES = sorted((SUITE / "cases").glob("*.yaml"))


Scopes = typing.List[typing.Dict[str, str]]


#: Ids of the open requests of a case, by their names.
requests: dict[str, int] = {}


def end_request(name: str, milliseconds: int, endpoint: str, is_error: bool) -> None:
    native.end_request(requests.pop(name), milliseconds * 1_000_000, endpoint, is_error)


def context_of(
    scopes: Scopes, ended: list[int], prepared: bool, bound_in: Scopes | None, returned: bool, request: str | None
) -> int:
    """The context id of a sample; ``core/agent/profiler/src/conformance/case.rs`` describes the arguments."""

    def inside(scopes: Scopes, work: typing.Callable) -> typing.Any:
        with contextlib.ExitStack() as stack:
            for labels in scopes:
                stack.enter_context(spanprof.tag_wrapper(spanprof.Labels(labels) if prepared else labels))
            if request is not None and requests[request] != 0:
                stack.enter_context(native.tag_wrapper(native.in_request({}, requests[request])))
            return work()

    if ended:
        opened = [spanprof.tag_wrapper(labels) for labels in scopes]
        for scope in opened:
            scope.__enter__()
        for index in ended:
            opened[index].__exit__(None, None, None)
        context = native.current()
        for index in set(range(len(opened))) - set(ended):
            opened[index].__exit__(None, None, None)
        return context

    if request is not None and request not in requests:
        requests[request] = native.begin_request()

    call = native.current if bound_in is None else inside(bound_in, lambda: spanprof.bind(native.current))
    open_scopes = scopes[:-1] if returned and bound_in is None else scopes

    def sample() -> int:
        context = inside(scopes[len(open_scopes) :], call)
        return native.current() if returned else context

    return inside(open_scopes, sample)


def run_cases() -> dict[str, str]:
    """The result of each case: its own name, or the failed expectation."""
    results = {}
    for path in CASES:
        text = path.read_text()
        try:
            config = yaml.safe_load(text).get("config", {})
            results[path.stem] = native._testing.run_case(text, config, context_of, end_request)
        except AssertionError as problem:
            results[path.stem] = str(problem)
    return results


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    # In its own process, because cases set the limits of the process's tables.
    code = "import json, test_conformance; print(json.dumps(test_conformance.run_cases()))"
    folder = pathlib.Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", [path.stem for path in CASES])
def test_conformance_case_holds_in_python(case, results):
    assert results[case] == case


def test_conformance_of_the_public_names():
    listed = yaml.safe_load((SUITE / "surface.yaml").read_text())
    assert sorted(listed["python"]["spanprof"]) == sorted(spanprof.__all__)
    assert sorted(listed["python"]["pyroscope"]) == sorted(pyroscope.__all__)
    assert all(callable(getattr(spanprof, concept["names"]["python"])) for concept in listed["concepts"])


def test_conformance_has_cases():
    assert len(CASES) >= 30
