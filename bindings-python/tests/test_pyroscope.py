"""Pyroscope's documented Python snippets run with the import renamed, and their profiles are correct."""

from __future__ import annotations

import warnings

import pytest
from spanprof import pyroscope
from spanprof.pyroscope_settings import translated


def test_the_documented_configuration_is_translated():
    ours = translated(
        dict(
            application_name="my.python.app",
            server_address="http://my-pyroscope-server:4040",
            sample_rate=100,
            detect_subprocesses=False,
            oncpu=True,
            gil_only=True,
            enable_logging=False,
            report_pid=False,
            report_thread_id=True,
            report_thread_name=True,
            tags={"region": "us-east"},
            basic_auth_username="user",
            basic_auth_password="password",
            tenant_id="team",
            http_headers={"x-extra": "1"},
            line_no=pyroscope.LineNo.First,
            cpu_enabled=True,
            mem_enabled=False,
            mem_max_nframe=128,
            mem_heap_sample_size=262_144,
        )
    )
    assert ours == {
        "service_name": "my.python.app",
        "endpoint": "http://my-pyroscope-server:4040",
        "sample_rate": 100,
        "thread_labels": True,
        "tags": {"region": "us-east"},
        "cpu": True,
        "heap": False,
        "heap_interval": 262_144,
        "headers": {"authorization": "Basic dXNlcjpwYXNzd29yZA==", "x-scope-orgid": "team", "x-extra": "1"},
    }


def test_oncpu_false_enables_the_wall_profile():
    assert translated({"oncpu": False}) == {"wall": True}
    assert translated({"oncpu": False, "wall": False}) == {"wall": False}


def test_our_names_take_precedence_over_pyroscopes():
    both = {"service_name": "ours", "application_name": "theirs", "headers": {"a": "1"}, "http_headers": {"a": "2"}}
    assert translated(both) == {"service_name": "ours", "headers": {"a": "1"}}
    assert translated({"application_name": "theirs", "service_name": "ours"}) == {"service_name": "ours"}


@pytest.mark.parametrize(
    "call",
    [
        lambda: translated({"app_name": "x"}),
        lambda: translated({"auth_token": "x"}),
        lambda: pyroscope.tag({}),
        lambda: pyroscope.remove_tags(),
        lambda: pyroscope.change_name("x"),
        lambda: pyroscope.build_summary(),
        lambda: pyroscope.test_logger(),
    ],
)
def test_deprecated_names_warn(call):
    with pytest.warns(DeprecationWarning, match="deprecated, use"):
        call()


def test_names_that_are_not_deprecated_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translated({"application_name": "x", "server_address": "y", "gil_only": True, "mem_enabled": False})


def test_the_documented_snippets_run(run_target):
    target = run_target(
        """
        import os, time
        from spanprof import pyroscope

        def work(seconds):
            start = time.thread_time()
            while time.thread_time() - start < seconds:
                sum(range(500))

        def fast_function():
            with pyroscope.tag_wrapper({"function": "fast"}):
                work(0.2)

        def slow_function():
            with pyroscope.tag_wrapper({"function": "slow"}):
                work(0.6)

        if __name__ == "__main__":
            pyroscope.configure(
                application_name="simple.python.app",
                server_address="http://127.0.0.1:9",
                tags={"hostname": "host-1"},
                sample_rate=100,
                oncpu=True,
                gil_only=True,
                enable_logging=True,
            )
            with pyroscope.tag_wrapper({"foo": "bar"}):
                fast_function()
                slow_function()
            pyroscope.add_thread_tag("thread", "main")
            work(0.2)
            pyroscope.remove_thread_tag("thread", "main")
            pyroscope.shutdown()
        """,
        SPANPROF_STOP_TIMEOUT="0.5",
    )
    by_function = target.profiles().by_label("function", through="work")
    assert by_function["slow"] == pytest.approx(0.6e9, rel=0.2)
    assert by_function["fast"] == pytest.approx(0.2e9, rel=0.4)
    inside = target.profiles().through("slow_function")
    assert all(s.labels["foo"] == "bar" and s.labels["hostname"] == "host-1" for s in inside)
    assert target.profiles().by_label("thread")["main"] == pytest.approx(0.2e9, rel=0.4)
    assert {s.labels["service.name"] for s in target.profiles().samples} == {"simple.python.app"}


def test_every_name_and_positional_argument_of_pyroscopes_package_exists(run_target):
    target = run_target(
        """
        import sys
        import spanprof
        from spanprof import pyroscope

        assert pyroscope.configure_experimental_stack_profiler(max_nframe=64) is True
        assert pyroscope.runtime_name() == sys.implementation.name
        assert pyroscope.runtime_version().startswith("3.")
        assert pyroscope.configure(
            "my.app",
            tags={"hostname": None, "region": "eu"},
            cpu_implementation=pyroscope.ProfilerImplementation.Stack,
            mem_enable_mem_domain=True,
        )
        assert spanprof.stats()["config.service_name"] == "my.app"
        assert "hostname" not in spanprof.stats()["config.tags"]
        assert pyroscope.shutdown() is True
        """
    )
    assert "SpanprofError" not in target.stderr


def test_the_second_and_third_positional_arguments_are_those_of_pyroscope(run_target):
    run_target(
        """
        import spanprof
        from spanprof import pyroscope

        assert pyroscope.configure(None, "my.app", "http://127.0.0.1:9")
        stats = spanprof.stats()
        assert (stats["config.service_name"], stats["config.endpoint"]) == ("my.app", "http://127.0.0.1:9")
        spanprof.update(stop_timeout=0.1)
        """,
        SPANPROF_FILE_DIRECTORY="",
    )
