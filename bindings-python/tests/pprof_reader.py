"""Reads the gzip-compressed pprof files of a directory: the tests' own reader, independent of the code under test.

Decodes the part of profile.proto that the tests need: samples with frames, values, labels and link. Not a validator.
"""

from __future__ import annotations

import gzip
import pathlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Iterator


@dataclass
class Sample:
    """One aggregated sample; frames leaf first."""

    frames: list[str]
    lines: list[tuple[str, int]]
    nanoseconds: int
    count: int
    labels: dict[str, object]
    bytes: int = 0
    values: dict[str, int] = field(default_factory=dict)

    @property
    def leaf(self) -> str:
        """The running function of Python, or the reason for which there is none: native code has a file without lines."""
        for name, (file, line) in zip(self.frames, self.lines):
            if line or not ("/" in file or name in ("spanprof", "[unknown_callers]")):
                return name
        return self.frames[0] if self.frames else ""


@dataclass
class Profile:
    """One file."""

    path: pathlib.Path
    types: list[tuple[str, str]]
    samples: list[Sample]
    period: int
    comments: list[str] = field(default_factory=list)
    time_nanos: int = 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif key & 7 == 2:
            length, at = _varint(data, at)
            yield key >> 3, data[at : at + length]
            at += length
        else:
            raise ValueError(f"unexpected wire type {key & 7} at byte {at}")


def _numbers(values: list[int | bytes]) -> list[int]:
    numbers: list[int] = []
    for value in values:
        if isinstance(value, int):
            numbers.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            numbers.append(number)
    return [number - (1 << 64) if number >= 1 << 63 else number for number in numbers]


def _message(data: bytes) -> dict[int, list]:
    fields: dict[int, list] = {}
    for number, value in _fields(data):
        fields.setdefault(number, []).append(value)
    return fields


def _one(fields: dict[int, list], number: int) -> int:
    return _numbers(fields.get(number, [0]))[-1]


def read_profile(path: pathlib.Path) -> Profile:
    """The profile of one file."""
    profile = _message(gzip.decompress(path.read_bytes()))
    strings = [text.decode() for text in profile.get(6, [])]
    functions = {}
    for raw in profile.get(5, []):
        function = _message(raw)
        functions[_one(function, 1)] = (strings[_one(function, 2)], strings[_one(function, 4)])
    locations = {}
    for raw in profile.get(4, []):
        location = _message(raw)
        lines = []
        for raw_line in location.get(4, []):
            line = _message(raw_line)
            name, file = functions[_one(line, 1)]
            lines.append((name, file, _one(line, 2)))
        locations[_one(location, 1)] = lines
    types = [(strings[_one(_message(raw), 1)], strings[_one(_message(raw), 2)]) for raw in profile.get(1, [])]
    units = [unit for _, unit in types]
    samples = []
    for raw in profile.get(2, []):
        sample = _message(raw)
        values = _numbers(sample.get(2, []))
        lines = [line for at in _numbers(sample.get(1, [])) for line in locations[at]]
        labels: dict[str, object] = {}
        for raw_label in sample.get(3, []):
            label = _message(raw_label)
            labels[strings[_one(label, 1)]] = strings[_one(label, 2)] if 2 in label else _one(label, 3)
        samples.append(
            Sample(
                frames=[name for name, _, _ in lines],
                lines=[(file, number) for _, file, number in lines],
                nanoseconds=values[units.index("nanoseconds")] if "nanoseconds" in units else 0,
                count=values[units.index("count")] if "count" in units else 0,
                labels=labels,
                bytes=values[units.index("bytes")] if "bytes" in units else 0,
                values={name: value for (name, _), value in zip(types, values)},
            )
        )
    comments = [strings[at] for at in _numbers(profile.get(13, []))]
    return Profile(path, types, samples, _one(profile, 12), comments, _one(profile, 9))


class Profiles:
    """Every profile of one type in a directory, read together."""

    def __init__(self, directory: pathlib.Path, profile_type: str = "cpu") -> None:
        paths = sorted(directory.rglob(f"{profile_type}-*.pb.gz"))
        self.files = [read_profile(path) for path in paths]
        self.samples = [sample for profile in self.files for sample in profile.samples]

    @property
    def nanoseconds(self) -> int:
        return sum(sample.nanoseconds for sample in self.samples)

    def by_leaf(self) -> Counter:
        """Nanoseconds by the running function."""
        total: Counter = Counter()
        for sample in self.samples:
            total[sample.leaf] += sample.nanoseconds
        return total

    def by_label(self, key: str, through: str | None = None) -> Counter:
        """Nanoseconds by the value of a label; only stacks through the function ``through`` when given."""
        total: Counter = Counter()
        for sample in self.samples:
            if through is None or through in sample.frames:
                total[sample.labels.get(key)] += sample.nanoseconds
        return total

    def through(self, function: str) -> list[Sample]:
        """Samples with ``function`` anywhere on the stack."""
        return [sample for sample in self.samples if function in sample.frames]
