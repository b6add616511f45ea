"""Runs a program many times, and prints the number of each outcome: a JSON list of [exit code, output, times].

    repeated.py COUNT PROGRAM [WORD…]
"""

import collections
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

#: Concurrent programs.
PARALLEL = 2


def one(words):
    ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    return ended.returncode, ended.stdout


if __name__ == "__main__":
    count, words = int(sys.argv[1]), sys.argv[2:]
    with ThreadPoolExecutor(PARALLEL) as pool:
        ends = collections.Counter(pool.map(one, [words] * count))
    print(json.dumps([[code, text, times] for (code, text), times in ends.items()]))
