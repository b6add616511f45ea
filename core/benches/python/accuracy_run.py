"""One run of the accuracy benchmark: burns a known mix under spanprof; prints the truth and the counters as JSON.

    accuracy_run.py RATE DEPTH THREADS CPU_SECONDS FOLDER
"""

import json
import sys
import threading
import time

import spanprof
import work


def main():
    rate, depth, threads, cpu_seconds, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
    destination = {"type": "file", "directory": folder}
    began = time.process_time()
    spanprof.start(service_name="accuracy", sample_rate=rate, destinations=[destination], upload_interval=3600)
    truths = []
    each = cpu_seconds / threads

    def run():
        truths.append(work.mix(depth, each))

    others = [threading.Thread(target=run) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    run()
    for thread in others:
        thread.join()
    spanprof.flush(30)
    stats = spanprof.stats()
    process = time.process_time() - began - stats["cost.own_cpu_ns"] / 1e9
    spanprof.stop()
    burnt = {part.__name__: sum(truth[part.__name__] for truth in truths) for part in work.PARTS}
    print(json.dumps({"burnt": burnt, "process": process, "samples": stats["samples.cpu"], "clock": stats["clock.name"]}))


if __name__ == "__main__":
    main()
