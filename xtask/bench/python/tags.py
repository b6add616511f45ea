"""Cost of a label scope; prints Markdown."""

import measuring


def main():
    given = measuring.arguments()
    rounds = 2_000 if given.short else 200_000
    runs = [measuring.child(given.pythons["spanprof"], "tags_run.py", rounds) for _ in range(5)]
    result = min(runs, key=lambda run: run["bare"])
    print("Entering and leaving, profiler running at 100 Hz; fastest of 7 blocks, in the process with the fastest bare scope of 5 processes.\n")
    names = {"bare": "`contextlib.nullcontext()`", "prebuilt": "`tag_wrapper` made before", "fresh": "`tag_wrapper({…})` of 3 keys"}
    measuring.table(["scope", "ns"], [[names[name], f"{value:.0f}"] for name, value in result.items()])


if __name__ == "__main__":
    main()
