"""Prints a result, after CPU time in `field_work`."""

import profiled

profiled.start()
profiled.field_work(1.0)
print(sum(number * number for number in range(100_000)))
