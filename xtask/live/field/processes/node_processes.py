"""Node.js programs of several processes: output and exit are those without spanprof, samples arrive.

    node_processes.py cluster|fork COUNT
"""

import os

import field


def main(kind, count):
    words = [os.environ["FIELD_NODE"], "--no-warnings", os.path.join(field.HERE, "processes/node_processes.js"), kind, count]
    ours, profiles = field.compared(words)
    samples = field.expect_samples(profiles, 5)
    return f"{count} processes, exit {ours.code}, {samples} samples"


if __name__ == "__main__":
    field.cell(main)
