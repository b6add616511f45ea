"""A program bundled by esbuild or webpack: with the package installed beside it, bundled or external, samples
arrive; without the package, the program runs with one warning.

    node_bundle.py esbuild|webpack
"""

import os

import field


def bundled(kind, has_package, external=None):
    """Path of the bundle in a separate directory, with or without the package beside it."""
    made = os.path.join(field.folder(), "bundle.js")
    words = [os.environ["FIELD_NODE"], os.path.join(field.HERE, "node/node_bundle.js"), kind, os.path.join(field.HERE, "burner.js"), made]
    done = field.run([*words, *([external] if external else [])])
    field.expect(done.code == 0, f"{kind} failed\n{done}")
    if has_package:
        modules = os.path.join(os.path.dirname(made), "node_modules")
        os.mkdir(modules)
        os.symlink(os.path.join(os.environ["NODE_PATH"], "spanprof"), os.path.join(modules, "spanprof"))
    return made


def main(kind):
    node = os.environ["FIELD_NODE"]
    inside, outside, alone = bundled(kind, True), bundled(kind, True, "spanprof"), bundled(kind, False)
    # From here on the package is resolved only beside the bundle.
    del os.environ["NODE_PATH"]
    counts = []
    for program in (inside, outside):
        _, profiles = field.compared([node, program])
        counts.append(field.expect_samples(profiles, 50))
    ended = field.expect_declined([node, alone], mentions="external")
    return f"{counts[0]} samples beside the package, {counts[1]} with it external; alone, exit {ended.code} and one warning"


if __name__ == "__main__":
    field.cell(main)
