"""First run of the wheel in a clean environment: start, labels, work, stop; a profile must be on disk afterwards."""

import glob
import os
import sys
import time
import warnings

directory, kind = sys.argv[1:]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import spanprof


def work(seconds):
    began = time.process_time()
    while time.process_time() - began < seconds:
        sum(range(500))


started = spanprof.start(service_name="first-run", destinations=[{"type": "file", "directory": directory}])
with spanprof.tag_wrapper({"endpoint": "/first"}):
    work(0.5)
spanprof.flush(5)
stats = spanprof.stats()
spanprof.stop()
written = glob.glob(os.path.join(directory, "cpu-*.pb.gz"))
if kind == "native":
    if not started or not written or not stats["samples.cpu"]:
        sys.exit(f"no profile was written; stats: {stats}")
    print(f"{stats['samples.cpu']} samples written to {os.path.basename(written[0])}")
else:
    if started or written or len(caught) > 1:
        sys.exit("the package without native code must do nothing except one warning")
    print(f"without native code: nothing profiled, {len(caught)} warning")
