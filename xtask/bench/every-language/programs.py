"""Arguments of the scripts of this directory, and the measurements of ../python."""

import argparse
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))

import measuring  # noqa: E402, F401


def arguments():
    """Names and commands of the programs in the order of the table, the command line, and a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", required=True)
    parser.add_argument("--command", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args()
    with open(given.programs) as file:
        given.commands = dict(json.load(file))
    return given
