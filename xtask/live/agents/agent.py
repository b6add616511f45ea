"""Uses CPU time with and without a label, under pyroscope-io: python agent.py ADDRESS SERVICE"""

import sys
import time

import pyroscope


def burn(cpu_seconds):
    began = time.thread_time()
    while time.thread_time() - began < cpu_seconds:
        sum(range(500))


def burn_with_label():
    burn(2)


def burn_alone():
    burn(1)


address, service = sys.argv[1:]
pyroscope.configure(application_name=service, server_address=address, sample_rate=100, tags={"region": "eu"})
with pyroscope.tag_wrapper({"endpoint": "/cart"}):
    burn_with_label()
burn_alone()
pyroscope.shutdown()
