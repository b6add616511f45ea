"""Half a second of CPU time, delivered to the receiver of the environment."""

import time

import spanprof


def burn():
    until = time.process_time() + 0.5
    while time.process_time() < until:
        sum(range(500))


spanprof.start(service_name="delivery")
burn()
spanprof.stop()
