"""Compares the totals of every_type.py in its files with those that Pyroscope stored, type by type."""

import json
import pathlib
import subprocess
import sys
import time

from program import SPAN_CPU_SECONDS, SPAN_ID
from query import CPU, Pyroscope, flamegraph_total

# Pyroscope's id of each type: group, type and unit, period type and unit. It takes the group from the period type. Not here:
# cpu, whose exact time is in the files only (`query.py` compares it).
TYPES = {
    "wall": "wall:wall:nanoseconds:wall:nanoseconds",
    "alloc_space": "memory:alloc_space:bytes:memory:bytes",
    "alloc_objects": "memory:alloc_objects:count:memory:bytes",
    "inuse_space": "memory:inuse_space:bytes:memory:bytes",
    "inuse_objects": "memory:inuse_objects:count:memory:bytes",
    "contentions": "mutex:contentions:count:mutex:count",
    "delay": "mutex:delay:nanoseconds:mutex:count",
    "off_cpu": "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds",
    "threads": "threads:threads:count:threads:count",
    "gc": "gc:gc:nanoseconds:gc:nanoseconds",
}

# The same types in Pyroscope's own protocol: the names of its dashboards. The total of cpu is exact here.
PUSHED_TYPES = {
    "cpu": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
    "wall": "wall:wall:nanoseconds:wall:nanoseconds",
    "alloc_space": "memory:alloc_space:bytes:space:bytes",
    "alloc_objects": "memory:alloc_objects:count:space:bytes",
    "inuse_space": "memory:inuse_space:bytes:space:bytes",
    "inuse_objects": "memory:inuse_objects:count:space:bytes",
    "contentions": "mutex:contentions:count:contentions:count",
    "delay": "mutex:delay:nanoseconds:contentions:count",
    "off_cpu": "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds",
    "threads": "goroutine:goroutine:count:goroutine:count",
    "gc": "gc:gc:nanoseconds:gc:nanoseconds",
}


#: File name of each type that shares a file with another.
FILES = {
    "contentions": "lock",
    "delay": "lock",
    "alloc_space": "allocs",
    "alloc_objects": "allocs",
    "inuse_space": "heap",
    "inuse_objects": "heap",
}


def written(command, directory, name):
    """Adds up all windows, as Pyroscope does; `spanprof top` takes the newest one of a state such as `inuse_space`."""
    kind = FILES.get(name, name)
    totals = []
    for file in pathlib.Path(directory).glob(f"{kind}-*.pb.gz"):
        words = [command, "top", file, "--type", name, "--json"]
        totals.append(json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["total"])
    return sum(totals)


def stored(pyroscope, profile_type):
    body = {"profileTypeID": profile_type, "labelSelector": pyroscope.selector()}
    return flamegraph_total(pyroscope.call("SelectMergeStacktraces", **body))


def span_and_label_problems(pyroscope):
    """The span's CPU time can be queried; labels are series under valid names; no trace id is a label."""
    span = pyroscope.span_total(SPAN_ID)
    if not SPAN_CPU_SECONDS * 0.5e9 < span <= stored(pyroscope, CPU):
        yield f"the span has {span} ns of CPU time"
    names = {name for series in pyroscope.series() for name in series}
    for name, expected in {"user_tier": True, "endpoint": True, "trace_id": False, "span_id": False}.items():
        if (name in names) != expected:
            yield f"label {name} is {'missing' if expected else 'stored'}: {sorted(names)}"


def main():
    command, directory, port, service, destination = sys.argv[1:]
    types_of = {"otlp": TYPES, "pyroscope": PUSHED_TYPES}[destination]
    pyroscope = Pyroscope(int(port), service)
    until = time.monotonic() + 30
    problems = ["no query"]
    while problems and time.monotonic() < until:
        types = pyroscope.call("ProfileTypes").get("profileTypes", [])
        listed = {one["ID"] for one in types}
        problems = []
        for name, profile_type in types_of.items():
            sent, found = written(command, directory, name), stored(pyroscope, profile_type)
            if sent != found or sent == 0 or profile_type not in listed:
                problems.append(f"{profile_type}: {sent} written, {found} in Pyroscope; it lists {sorted(listed)}")
        time.sleep(0.5)
    if not problems and destination == "pyroscope":
        problems = list(span_and_label_problems(pyroscope))
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(types_of)} types, each with the same total in Pyroscope: {', '.join(types_of.values())}")


if __name__ == "__main__":
    main()
