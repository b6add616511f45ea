"""Start time, resident memory over the bare process, size of the wheel; prints Markdown."""

import os
import statistics

import measuring


def main():
    given = measuring.arguments()
    repeats, seconds = (2, 0.5) if given.short else (5, 12.0)
    rows = []
    with measuring.swallowing_receiver() as address:
        runs = {}
        names = ["none"] + [name for name in given.pythons if name != "py-spy"]
        for _ in range(repeats):
            for name in names:
                python = given.pythons.get(name, given.pythons["spanprof"])
                runs.setdefault(name, []).append(measuring.child(python, "footprint_run.py", name, address, seconds))
    bare = statistics.median(run["resident"] for run in runs["none"])
    for name in names[1:]:
        load, start = (statistics.median(run[key] for run in runs[name]) for key in ("import_ms", "start_ms"))
        resident = statistics.median(run["resident"] for run in runs[name]) - bare
        rows.append([name, f"{load:.1f}", f"{start:.1f}", f"{resident / 1e6:.1f}"])
    print(f"Medians of {repeats} fresh processes, {seconds:.0f} s of work each.\n")
    measuring.table(["profiler", "import, ms", "start, ms", "resident memory over the bare process, MB"], rows)
    print(f"The wheel: {os.path.getsize(given.wheel) / 1e6:.2f} MB packed.")


if __name__ == "__main__":
    main()
