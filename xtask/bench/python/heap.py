"""Cost of the allocator hooks per unsampled allocation and free; prints Markdown."""

import measuring


def main():
    given = measuring.arguments()
    processes, blocks, rounds = (2, 3, 2_000) if given.short else (9, 41, 20_000)
    runs = [measuring.child(given.pythons["spanprof"], "heap_run.py", blocks, rounds) for _ in range(processes)]
    rows = []
    for name in runs[0]:
        bare, _, _ = measuring.median_interval([run[name]["bare"] for run in runs])
        added, low, high = measuring.median_interval([run[name]["added"] for run in runs])
        rows.append([name, f"{bare:.1f}", f"{added:+.1f} ({low:+.1f} … {high:+.1f})"])
    print(
        f"Blocks of {rounds} calls with and without the hooks in turn, {blocks} pairs in each of {processes} processes: median "
        "difference of processor time, and its 95 % interval over the processes. The interval of samples is 512 KiB.\n"
    )
    measuring.table(["allocation and free", "ns without hooks", "ns added"], rows)


if __name__ == "__main__":
    main()
