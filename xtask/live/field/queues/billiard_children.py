"""Child processes of one task each, as in Celery's pool: billiard forks, and installs its own handler for every signal that
terminates a process. Prints the exit codes and the results.

    billiard_children.py COUNT
"""

import collections
import sys

import billiard
import profiled
from billiard.common import reset_signals

#: Children at the same time.
PARALLEL = 2


def child(results, number):
    # `billiard.pool.Worker` does this first in Celery's prefork pool.
    reset_signals(full=True)
    profiled.field_work(0.02)
    results.put(number * number)


if __name__ == "__main__":
    count = int(sys.argv[1])
    profiled.start()
    results = billiard.SimpleQueue()
    sums, codes, running = 0, collections.Counter(), []
    for number in range(count + PARALLEL):
        if number < count:
            running.append(billiard.Process(target=child, args=(results, number)))
            running[-1].start()
        if number >= PARALLEL:
            sums += results.get()
            oldest = running.pop(0)
            oldest.join()
            codes[oldest.exitcode] += 1
    print(dict(codes), sums)
