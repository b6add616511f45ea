"""A program on an interpreter that spanprof does not profile."""

import spanprof

assert spanprof.start(service_name="declined") is False
with spanprof.tag_wrapper({"endpoint": "/cart"}):
    assert not spanprof.is_running()
assert spanprof.stats() == {}
assert spanprof.stop()
print("complete")
