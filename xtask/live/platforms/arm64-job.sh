#!/job/busybox sh
# Runs in the virtual machine of arm64-system.sh: the unit tests of /job/tests, and the first programs.
/job/busybox mkdir -p /job/bin && /job/busybox --install -s /job/bin
export PATH=/usr/bin:/bin:/job/bin
[ -e /bin/sh ] || ln -s /job/busybox /bin/sh
uname -srm
echo "pages of $(python3 -c 'import os; print(os.sysconf("SC_PAGESIZE"))') bytes"

failed=0
# Tests that expect ticks in time, which the machine that emulates this one may delay, or costs as those of a processor.
skipped="weights_of_a_thread_on_perf_sum_to_its_cpu_clock a_thread_found_by_the_scan_is_accounted_for_since_its_birth
  a_thread_is_sampled_at_every_interval_under_requests_with_the_same_signal cpu_time_with_the_signal_blocked_is_not_charged
  handler_time_under_cpu_contention_is_that_of_the_thread_clock_around_each_tick
  a_thread_whose_event_the_program_closed_gets_a_new_one_at_its_next_tick a_thread_that_blocks_fault_signals_is_not_walked"
for test in /job/tests/*; do
  echo "── ${test##*/}"
  "$test" --test-threads=2 $(for name in $skipped; do echo "--skip $name"; done) || failed=$((failed + 1))
done

platforms=/job/xtask/live/platforms
export PYTHONPATH=/job/site SPANPROF_STOP_TIMEOUT=60s
checked() { # NAME DIRECTORY FUNCTION COMMAND…
  echo "── $1"
  directory=$2 function=$3
  shift 3
  { "$@" && python3 $platforms/check_function.py "$directory" $function; } || failed=$((failed + 1))
}
checked "first run of Python" /tmp/python "work complete" python3 /job/xtask/wheel/first_run.py /tmp/python native
cd /job/node
checked "first run of Node.js" /job/node anonymous /opt/node/bin/node first_run.mjs
checked "first run of Java" /tmp/java FirstRun.main /usr/lib/jvm/java-17-openjdk-arm64/bin/java -cp /job/java/classes:/job/java/spanprof.jar \
  FirstRun library /tmp/java

echo "$failed failures"
exit "$failed"
