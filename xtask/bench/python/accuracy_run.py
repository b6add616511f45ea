"""One run of the accuracy benchmark: runs a known mix under spanprof; prints the true shares and the counters as JSON.

    accuracy_run.py MIX CLOCK RATE DEPTH THREADS CPU_SECONDS FOLDER

MIX is a name of work.MIXES, or cycle-N: a part of 30 % of each N ms of CPU time.
"""

import json
import sys
import threading
import time

import spanprof
import work


def main():
    mix, clock, folder = sys.argv[1], sys.argv[2], sys.argv[7]
    rate, depth, threads, cpu_seconds = int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])
    destination = {"type": "file", "directory": folder}
    began = time.process_time()
    settings = {"sample_rate": rate, "clock": clock, "destinations": [destination], "upload_interval": 3600}
    spanprof.start(service_name="accuracy", **settings)
    truths = []
    each = cpu_seconds / threads

    def run():
        if mix.startswith("cycle-"):
            truths.append(work.cycles(depth, int(mix.removeprefix("cycle-")), each))
        else:
            truths.append(work.mix(work.MIXES[mix], depth, each))

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
    burnt = {part: sum(truth[part] for truth in truths) for part in truths[0]}
    print(json.dumps({"burnt": burnt, "process": process, "samples": stats["samples.cpu"], "clock": stats["clock.name"]}))


if __name__ == "__main__":
    main()
