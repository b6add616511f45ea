"""Node.js under `--permission`: with `--allow-addons` samples arrive; without, one warning says what to add, and the program runs.

    node_permission.py
"""

import os

import field


def main():
    node = os.environ["FIELD_NODE"]
    major = int(field.run([node, "-p", "process.versions.node"]).stdout.partition(".")[0])
    permission = "--permission" if major >= 23 else "--experimental-permission"
    words = [node, permission, "--allow-fs-read=*", "--allow-fs-write=*"]
    program = os.path.join(field.HERE, "burner.js")
    _, profiles = field.compared([*words, "--allow-addons", program])
    count = field.expect_samples(profiles, 50)
    ours, profiles = field.compared([*words, program])
    lines = [line for line in ours.stderr.splitlines() if "SpanprofWarning" in line]
    field.expect(len(lines) == 1, f"without --allow-addons: {len(lines)} warnings, expected 1\n{ours.stderr}")
    field.expect("--allow-addons" in lines[0], f"the warning does not name --allow-addons\n{lines[0]}")
    field.expect(field.samples_of(profiles) == 0, "samples without --allow-addons")
    return f"{count} samples with --allow-addons; without, exit {ours.code} and one warning"


if __name__ == "__main__":
    field.cell(main)
