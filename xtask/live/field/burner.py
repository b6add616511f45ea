"""Prints a result, after CPU time in `field_work`.

    burner.py [SECONDS]
"""

import sys

import profiled

profiled.start()
profiled.field_work(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
print(sum(number * number for number in range(100_000)))
