"""Node.js under `--permission`: with `--allow-addons` samples arrive; without it, the program runs with one warning.

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
    ended = field.expect_declined([*words, program], mentions="--allow-addons")
    return f"{count} samples with --allow-addons; without, exit {ended.code} and one warning"


if __name__ == "__main__":
    field.cell(main)
