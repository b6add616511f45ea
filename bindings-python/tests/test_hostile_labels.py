"""Invalid and extreme labels: nothing raises, valid text is unchanged, the rest is truncated or replaced and counted."""

from __future__ import annotations

import collections
import enum
import types

import pytest
import spanprof
from spanprof import _spanprof as native


def labels_under(labels: object) -> dict[str, str]:
    with spanprof.tag_wrapper(labels):
        return native.describe()["labels"]


def test_other_values_become_their_text():
    class Color(str, enum.Enum):
        RED = "red"

    values = {"int": 7, "none": None, "float": 1.5, "bool": True, "bytes": b"x", "list": [1], 5: "int key", "enum": Color.RED}
    seen = labels_under(values)
    assert seen["int"] == "7" and seen["none"] == "None" and seen["bool"] == "True" and seen["5"] == "int key"
    assert seen["bytes"] == "b'x'" and seen["list"] == "[1]" and seen["enum"] == "red"


@pytest.mark.parametrize(
    "mapping",
    [types.MappingProxyType({"a": "1"}), collections.OrderedDict(a="1"), collections.ChainMap({"a": "1"}), collections.UserDict(a="1")],
)
def test_any_mapping_is_accepted(mapping):
    assert labels_under(mapping) == {"a": "1"}


def test_a_later_change_of_the_dictionary_does_not_change_the_labels():
    labels = {"a": "1"}
    scope = spanprof.tag_wrapper(labels)
    labels["a"] = "2"
    with scope:
        assert native.describe()["labels"] == {"a": "1"}


def test_lone_surrogates_are_replaced():
    assert labels_under({"key": "x\ud800y"}) == {"key": "x\ufffdy"}
    assert list(labels_under({"k\udfff": "value"}).values()) == ["value"]


def test_ten_thousand_labels_are_bounded():
    seen = labels_under({f"key{number}": "value" for number in range(10_000)})
    assert len(seen) < 1_000


class Raises:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class ExitsTheProgram:
    def __str__(self) -> str:
        raise SystemExit(3)


def test_values_whose_text_raises_do_not_raise_here():
    assert labels_under({"good": "1", "bad": Raises(), "worse": ExitsTheProgram()})["good"] == "1"
    assert "good" in labels_under({Raises(): "1", "good": "1"})


@pytest.mark.parametrize("labels", [None, 5, "text", [1, 2], [("a", "1")], object(), Raises(), {1, 2}])
def test_a_value_that_is_not_a_mapping_gives_no_labels_and_does_not_raise(labels):
    assert labels_under(labels) == {}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("tag_wrapper(a='b')", {"a": "b"}),
        ("tag_wrapper({'a': '1', 'b': '1'}, b=2)", {"a": "1", "b": "2"}),
        ("tag_wrapper(labels={'a': '1'})", {"a": "1"}),
        ("tag_wrapper(labels={'a': '1'}, b=2)", {"a": "1", "b": "2"}),
        ("tag_wrapper(labels='red')", {"labels": "red"}),
        ("tag_wrapper({'a': '1'}, labels='red')", {"a": "1", "labels": "red"}),
    ],
)
def test_keywords_are_labels_too(call, expected):
    with eval(f"spanprof.{call}"):
        assert native.describe()["labels"] == expected


@pytest.mark.parametrize("call", ["tag_wrapper(None)", "tag_wrapper('abc')", "tag_wrapper()", "tag_wrapper('a', 'b')", "tag_wrapper(7)"])
def test_invalid_arguments_log_one_warning_and_the_body_runs(run_target, call):
    target = run_target(
        f"""
        import spanprof

        spanprof.start(upload_interval=60)
        for _ in range(3):
            with spanprof.{call}:
                print("ran")
        """
    )
    assert target.stdout.split() == ["ran"] * 3
    assert target.stderr.count("tag_wrapper() expects a mapping") == 1, target.stderr


def test_a_decorated_class_is_unchanged_with_one_warning(caplog):
    @spanprof.tag_wrapper({"a": "1"})
    class Job:
        pass

    assert isinstance(Job, type) and isinstance(Job(), Job)
    assert "decorate its methods" in caplog.text


def test_a_mapping_that_changes_itself_while_it_is_read_does_not_crash():
    class Growing(dict):
        def items(self):
            self[len(self)] = "more"
            return super().items()

        def keys(self):
            self[len(self)] = "more"
            return super().keys()

    class Key:
        def __init__(self, labels: dict) -> None:
            self.labels = labels

        def __str__(self) -> str:
            self.labels.clear()
            return "key"

    labels: dict = {}
    labels[Key(labels)] = "1"
    labels["other"] = "2"
    assert "key" in labels_under(labels)
    labels_under(Growing(a="1"))


def test_two_hundred_thousand_different_values_stay_bounded_and_never_raise(run_target):
    # In its own process: label sets are never freed, so none would be left for the rest of the suite.
    run_target(
        """
        import resource
        import spanprof

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(200_000):
            with spanprof.tag_wrapper({"user": number}):
                pass
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown_kib < 64 * 1024, grown_kib
        """
    )
