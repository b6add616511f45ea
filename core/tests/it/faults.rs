//! Faults inside the profiler do not affect the host, and are counted.

use super::profiler::start_native;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::profiler::{burn, one_at_a_time, without_destination, TIMEOUT};
use spanprof_aggregate::runtime::{Frame, FrameType, Runtime, RuntimeThread, WallRuntime};
use spanprof_aggregate::StatValue;
use spanprof_config::Config;
use spanprof_profiler::ProfilerHandle;
use spanprof_signal::{
    CaptureFn, CaptureOtherFn, Captured, Context, HandlerContext, RawFrame, RawSample, RawStack, SampleFlags,
    SampleKind,
};

fn walk_one(_: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    stack.push(RawFrame { code: 0x5000, at: 1 });
    Captured::Walked
}

/// Calls a function when a frame is resolved.
struct ResolvingRuntime<F>(F);

impl<F: Fn() + Send + Sync + 'static> Runtime for ResolvingRuntime<F> {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn capture(&self) -> CaptureFn {
        walk_one
    }

    fn resolve(&self, _: RawFrame, _: u64, _: &mut Vec<Frame>) {
        self.0();
    }
}

fn sample(kind: SampleKind, frames: &[RawFrame]) -> RawSample<'_> {
    RawSample {
        kind,
        flags: SampleFlags(0),
        thread_id: spanprof_os::thread_id(),
        time_ns: spanprof_os::monotonic_ns(),
        values: [1000, 1],
        key: 7,
        context: Context::None,
        frames,
    }
}

#[test]
fn a_panic_on_a_thread_of_the_profiler_ends_profiling_only() {
    let _serial = one_at_a_time();
    let panicking = ResolvingRuntime(|| panic!("on purpose, to test that it does not propagate"));
    let profiler = ProfilerHandle::start_with_runtime(without_destination(), Arc::new(panicking)).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while profiler.is_running() && Instant::now() < deadline {
        burn(Duration::from_millis(20));
        profiler.flush(Duration::from_millis(50));
    }
    let stats = profiler.stats();
    assert_eq!(stats.get("state"), Some(&StatValue::Text("failed".to_owned())));
    assert_eq!(stats.counter("internal.panics"), 1);
    assert!(!profiler.flush(TIMEOUT), "a flush of a failed profiler returns immediately");
    profiler.stop();
    let again = start_native(without_destination()).unwrap();
    assert!(again.is_running());
    again.stop();
}

/// Three sleeping threads and one working thread, all visible to the wall sampler.
#[derive(Default)]
struct FourThreads {
    ids: [AtomicU32; 4],
}

fn walk_other(thread: u64, _: u32, stack: &mut RawStack<'_>) -> Captured {
    stack.push(RawFrame { code: 0x6000 + thread * 16, at: 1 });
    stack.push(RawFrame { code: 0x6000, at: 1 });
    Captured::Walked
}

impl Runtime for FourThreads {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn capture(&self) -> CaptureFn {
        walk_one
    }

    fn resolve(&self, raw: RawFrame, _: u64, out: &mut Vec<Frame>) {
        let name = format!("thread {}", (raw.code - 0x6000) / 16);
        out.push(Frame { function: name.into(), frame_type: FrameType::Native, ..Frame::default() });
    }

    fn wall(&self) -> Option<&dyn WallRuntime> {
        Some(self)
    }
}

impl WallRuntime for FourThreads {
    fn capture_other(&self) -> Option<CaptureOtherFn> {
        Some(walk_other)
    }

    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        let ids = self.ids.iter().map(|id| id.load(Ordering::Relaxed));
        let known = ids.enumerate().filter(|(_, id)| *id != 0);
        out.extend(known.map(|(index, thread_id)| RuntimeThread { thread_id, handle: index as u64 + 1 }));
    }
}

#[test]
fn wall_samples_of_a_subset_represent_all_threads_and_working_ones_are_kept() {
    let _serial = one_at_a_time();
    let runtime = Arc::new(FourThreads::default());
    // Dropped on every return path, also after a failed assertion, which ends the threads.
    let running = Arc::new(());
    let threads: Vec<_> = (0..4)
        .map(|index| {
            let (runtime, running) = (runtime.clone(), Arc::downgrade(&running));
            std::thread::spawn(move || {
                runtime.ids[index].store(spanprof_os::thread_id(), Ordering::Relaxed);
                while running.strong_count() > 0 {
                    match index {
                        3 => drop(burn(Duration::from_millis(1)).to_string()),
                        _ => std::thread::sleep(Duration::from_millis(5)),
                    }
                }
                runtime.ids[index].store(0, Ordering::Relaxed);
            })
        })
        .collect();
    let directory = std::env::temp_dir().join(format!("spanprof-wall-{}", std::process::id()));
    let config = Config {
        cpu: false,
        wall: true,
        wall_rate: Some(200),
        destinations: None,
        file_directory: Some(directory.to_string_lossy().into_owned()),
        ..without_destination()
    };
    let deadline = Instant::now() + TIMEOUT;
    while runtime.ids.iter().any(|id| id.load(Ordering::Relaxed) == 0) {
        assert!(Instant::now() < deadline, "not every thread has started");
        std::thread::yield_now();
    }
    let begun = Instant::now();
    let profiler = ProfilerHandle::start_with_runtime(config, runtime).unwrap();
    let started = Instant::now();
    std::thread::sleep(Duration::from_millis(1500));
    let inside = started.elapsed();
    let cost_ns = ["cost.own_cpu_ns", "cost.process_cpu_ns"].map(|name| profiler.stats().counter(name));
    assert!(0 < cost_ns[0] && cost_ns[0] < cost_ns[1], "the cost is reported without CPU clocks too: {cost_ns:?}");
    assert!(profiler.stop(), "the file was written");
    let outside = begun.elapsed();
    drop(running);
    for thread in threads {
        thread.join().unwrap();
    }
    let paths = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|it| it == "gz")).collect();
    let file = files.pop().expect("one file");
    assert!(files.is_empty() && file.file_name().unwrap().to_string_lossy().starts_with("wall-"), "{file:?}");
    let data = spanprof_read::decode::pprof::decode(&std::fs::read(&file).unwrap(), &Default::default()).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let total: i64 = data.profiles().flat_map(|(_, profile)| profile.samples.iter().map(|s| profile.weight(s))).sum();
    // Exact on any machine: all time between start and stop lies between two ticks, or before the last one at stop.
    let total = Duration::from_nanos(total as u64 + 1_000) / 4;
    assert!(
        (inside..=outside).contains(&total),
        "wall time of each of four threads: {inside:?}, {total:?}, {outside:?}"
    );
    let folded = spanprof_profile::encode::folded::encode(&spanprof_profile::transform::tree(&data, "wall"));
    for thread in 1..=4 {
        assert!(folded.contains(&format!("thread 0;thread {thread} ")), "{folded}");
    }
}

#[test]
fn submitted_samples_of_every_kind_reach_the_same_window() {
    let _serial = one_at_a_time();
    let runtime = spanprof_aggregate::testing::FakeRuntime::new();
    let code = runtime.code_of("allocating");
    let config = Config { cpu: false, ..without_destination() };
    let profiler = ProfilerHandle::start_with_runtime(config, runtime).unwrap();
    let windows_closed = || profiler.stats().counter("windows.closed");
    for kind in [
        SampleKind::Alloc,
        SampleKind::InUse,
        SampleKind::Lock,
        SampleKind::EventLoop,
        SampleKind::OffCpu,
        SampleKind::Gc,
        SampleKind::Threads,
    ] {
        assert!(profiler.submit(&sample(kind, &[RawFrame { code, at: 3 }])).is_ok());
    }
    assert!(profiler.flush(TIMEOUT));
    assert_eq!((windows_closed(), profiler.stats().counter("samples.submitted")), (1, 6));
    assert_eq!(profiler.stats().counter("samples.off_cpu"), 1);
    assert!(profiler.flush(TIMEOUT));
    assert_eq!(windows_closed(), 1, "no new sample");
    profiler.stop();
    let late = [RawFrame { code, at: 3 }];
    assert!(profiler.submit(&sample(SampleKind::Alloc, &late)).is_err(), "submit fails after stop");
}

#[test]
fn stop_reports_a_lost_window_be_it_the_last_or_an_earlier_one() {
    let _serial = one_at_a_time();
    let runtime = spanprof_aggregate::testing::FakeRuntime::new();
    // Names of 100 kB exceed the capacity of the queue, which drops the window before the export ends.
    let frames: Vec<_> =
        (0..100).map(|number| RawFrame { code: runtime.code_of(&format!("{number:01000}")), at: 1 }).collect();
    let config = Config {
        cpu: false,
        destinations: None,
        queue_max_bytes: 65_536,
        max_profile_size: 4_128_768,
        ..without_destination()
    };
    for is_an_earlier_one in [false, true] {
        let profiler = ProfilerHandle::start_with_runtime(config.clone(), runtime.clone()).unwrap();
        assert!(profiler.submit(&sample(SampleKind::Alloc, &frames)).is_ok());
        if is_an_earlier_one {
            assert!(!profiler.flush(Duration::from_secs(5)), "the window was lost");
        }
        assert!(!profiler.stop(), "a window was lost");
        assert_eq!(profiler.stats().counter("export.0.dropped_queue_full"), 1);
    }
}

#[test]
fn a_drain_thread_that_outlives_its_stop_takes_no_sample_and_no_wakeup_of_the_next_run() {
    let _serial = one_at_a_time();
    let submit = |profiler: &ProfilerHandle| {
        assert!(profiler.submit(&sample(SampleKind::Lock, &[RawFrame { code: 0x7000, at: 1 }])).is_ok());
    };
    let [is_resolving, may_continue] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (resolving, allowed) = (is_resolving.clone(), may_continue.clone());
    let stalled = ResolvingRuntime(move || {
        resolving.store(true, Ordering::Release);
        while !allowed.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let config = Config { cpu: false, stop_timeout: Duration::ZERO, ..without_destination() };
    let first = ProfilerHandle::start_with_runtime(config, Arc::new(stalled)).unwrap();
    submit(&first);
    let deadline = Instant::now() + TIMEOUT;
    while !is_resolving.load(Ordering::Acquire) {
        assert!(Instant::now() < deadline, "the sample is not resolved");
        first.flush(Duration::ZERO);
    }
    assert!(!first.stop(), "its drain thread still works");
    let config = Config { cpu: false, ..without_destination() };
    let next = ProfilerHandle::start_with_runtime(config, spanprof_aggregate::testing::FakeRuntime::new()).unwrap();
    submit(&next);
    may_continue.store(true, Ordering::Release);
    while next.stats().counter("samples.submitted") == 0 {
        assert!(Instant::now() < deadline, "the sample of the next run is lost");
        next.flush(Duration::from_secs(5));
    }
    assert_eq!(first.stats().counter("samples.submitted"), 1, "its own sample");
    assert!(next.stop());
}
