"""One run of the heap benchmark: processor time per allocation and free with and without the allocator hooks, in turn in one
process; prints nanoseconds by object as JSON.

    heap_run.py BLOCKS ROUNDS
"""

import ctypes
import json
import statistics
import sys
import time

import spanprof

# PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM and PYMEM_DOMAIN_OBJ.
DOMAINS = (0, 1, 2)
# Size of a bytes object without its contents, bytes.
HEADER = sys.getsizeof(b"")


class Allocator(ctypes.Structure):
    """`PyMemAllocatorEx`."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]


def installed():
    """The allocators in use, by domain."""
    allocators = {domain: Allocator() for domain in DOMAINS}
    for domain, allocator in allocators.items():
        ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(allocator))
    return allocators


def install(allocators):
    for domain, allocator in allocators.items():
        ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(allocator))


def block(make, rounds):
    """Nanoseconds of processor time per call."""
    repeated = range(rounds)
    begun = time.thread_time_ns()
    for _ in repeated:
        make()
    return (time.thread_time_ns() - begun) / rounds


def main():
    blocks, rounds = int(sys.argv[1]), int(sys.argv[2])
    bare = installed()
    spanprof.start(cpu=False, heap=True, destinations=[], upload_interval=3600)
    hooks = installed()
    assert any(bare[domain].malloc != hooks[domain].malloc for domain in DOMAINS)
    result = {}
    # Requests above 512 bytes pass the hooks of two domains.
    requests = {"object": object}
    for size in (100, 500, 600, 4096):
        requests[f"bytes, request of {size}"] = lambda source=bytearray(size - HEADER): bytes(source)
    for name, make in requests.items():
        times = {"bare": [], "hooks": []}
        for _ in range(blocks):
            for mode, allocators in (("bare", bare), ("hooks", hooks)):
                install(allocators)
                times[mode].append(block(make, rounds))
        added = [with_hooks - without for with_hooks, without in zip(times["hooks"], times["bare"])]
        result[name] = {"bare": statistics.median(times["bare"]), "added": statistics.median(added)}
    install(hooks)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
