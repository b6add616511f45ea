"""Works until it is terminated, with every profile on; prints the address at which profiles are pulled."""

import threading

import spanprof

SPAN = {"endpoint": "/cart", "trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}

spanprof.start(
    pull="127.0.0.1:0", pull_token="live-token", destinations=[], service_name="live-pull", profiles="all",
    heap_interval=4096, upload_interval=3,
)
lock = threading.Lock()
kept = []


def burn():
    total = 0
    for number in range(20_000):
        total += number * number
    return total


def allocate():
    kept.append(bytearray(20_000))
    if len(kept) > 200:
        kept.pop(0)


def wait_for_lock():
    with lock:
        burn()


def work():
    while True:
        with spanprof.tag_wrapper(SPAN):
            wait_for_lock()
            allocate()


for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
print("address", spanprof.stats()["pull.address"], flush=True)
# The time limit of the suite.
threading.Event().wait(300)
