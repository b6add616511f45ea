"""The handler of the layer: calls the function's own one, then sends the profile.

Lambda freezes the process as soon as the response is sent, until the next invocation: what is not sent before may never be.
"""

import importlib
import os

import spanprof

#: A receiver that does not answer delays the response by at most this, in seconds.
LONGEST_FLUSH = 2.0
#: Time that the flush leaves of the function's timeout, in seconds.
MARGIN = 0.2

# Before the function's module is imported: its locks and its import are in the profile.
spanprof.start()

_module, _, _name = os.environ["ORIGINAL_HANDLER"].rpartition(".")
_original = getattr(importlib.import_module(_module.replace("/", ".")), _name)


def handler(event, context):
    try:
        return _original(event, context)
    finally:
        left = context.get_remaining_time_in_millis() / 1000 - MARGIN
        spanprof.flush(max(0.0, min(LONGEST_FLUSH, left)))
