"""Figures that programs print, each in several processes; prints Markdown.

A program gets the address of a receiver and a number of seconds, and prints JSON: figures by name. `over none` is the difference to
the last row above that ends with `none`, within a round.
"""

import json
import random
import subprocess

import measuring


def cell(values):
    return "{:.4g} ({:.4g} … {:.4g})".format(*measuring.median_interval(values))


def main():
    given = measuring.arguments()
    rounds, seconds = (2, 1) if given.short else (9, 8)
    names = list(given.commands)
    results = {name: [] for name in names}
    with measuring.swallowing_receiver() as address:
        for _ in range(rounds):
            for name in random.sample(names, len(names)):
                words = [*given.commands[name], address, str(seconds)]
                done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
                results[name].append(json.loads(done.stdout.splitlines()[-1]))
    figures = list(dict.fromkeys(figure for runs in results.values() for figure in runs[0]))
    has_none = any(name.endswith("none") for name in names)
    rows, none = [], None
    for name in names:
        none = name if name.endswith("none") else none
        row = [name]
        for figure in figures:
            values = [run.get(figure) for run in results[name]]
            row.append("–" if None in values else cell(values))
            if has_none:
                bare = [run.get(figure) for run in results[none]] if none else [None]
                is_compared = name != none and None not in [*values, *bare]
                row.append(cell([value - other for value, other in zip(values, bare)]) if is_compared else "–")
        rows.append(row)
    head = [column for figure in figures for column in ([figure, "over none"] if has_none else [figure])]
    print(f"{rounds} processes per row, in turn: medians, and 95 % intervals.\n")
    measuring.table(["program", *head], rows)


if __name__ == "__main__":
    main()
