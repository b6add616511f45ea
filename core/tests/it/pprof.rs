//! `spanprof::pprof`: the calls of programs written for the crate `pprof`, and known shares.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use super::profiler::{burn, one_at_a_time, start_native, with_receiver, without_destination, Receiver200, TIMEOUT};
use super::pull;
// The only line that a program changes.
use spanprof::pprof;
use spanprof_config::Config;
use spanprof_profiler::ProfilerHandle;
use spanprof_read::decode::{self, DecodeLimits};

/// Declares a function that uses CPU time itself, so that it is the leaf of its samples: the build of this test may lack
/// frame pointers.
macro_rules! declare_burner {
    ($name:ident) => {
        #[inline(never)]
        fn $name(cpu: Duration) -> u64 {
            let begun = spanprof_os::current_thread_cpu_ns();
            let mut mixed = begun | 1;
            while spanprof_os::current_thread_cpu_ns() - begun < cpu.as_nanos() as u64 {
                let mut round = 0;
                while round < 20_000 {
                    mixed ^= mixed << 13;
                    mixed ^= mixed >> 7;
                    mixed ^= mixed << 17;
                    round += 1;
                }
            }
            mixed
        }
    };
}

declare_burner!(three_parts);
declare_burner!(one_part);

/// Samples whose leaf is this function.
fn samples_in(report: &pprof::Report, function: &str) -> isize {
    let is_leaf = |frames: &pprof::Frames| {
        frames.frames.first().is_some_and(|frame| frame.iter().any(|symbol| symbol.name().ends_with(function)))
    };
    report.data.iter().filter(|(frames, _)| is_leaf(frames)).map(|(_, count)| count).sum()
}

#[test]
fn a_report_has_the_shares_of_cpu_time() {
    let _serial = one_at_a_time();
    let guard = pprof::ProfilerGuard::new(1000).unwrap();
    for _ in 0..10 {
        three_parts(Duration::from_millis(150));
        one_part(Duration::from_millis(50));
    }
    let report = guard.report().build().unwrap();
    let (three, one) = (samples_in(&report, "::three_parts"), samples_in(&report, "::one_part"));
    // A sample stands for the CPU time since the previous one, so shares are more exact than those of independent samples:
    // a standard error of at most 0.16 for these counts.
    let ratio = three as f64 / one as f64;
    assert!((2.4..3.7).contains(&ratio), "{three} and {one} samples");
    assert_eq!(report.timing.frequency, 1000);
    assert!(report.timing.duration >= Duration::from_secs(2), "{:?}", report.timing);
    // The loops' clock calls are in other leaves, and a loaded machine has less precise timers.
    let total: isize = report.data.values().sum();
    assert!((1000..2600).contains(&total) && three + one > total / 2, "{three} and {one} of {total} samples");
}

// As these programs do.
#[allow(clippy::field_reassign_with_default)]
#[test]
fn the_programs_of_the_readme_run_with_the_import_changed() {
    let _serial = one_at_a_time();
    let directory = std::env::temp_dir().join(format!("spanprof-pprof-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let blocklist = ["libc", "libgcc", "pthread", "vdso"];
    let guard = pprof::ProfilerGuardBuilder::default().frequency(1000).blocklist(&blocklist).build().unwrap();
    burn(Duration::from_millis(300));

    if let Ok(report) = guard.report().build() {
        let text = format!("{report:?}");
        assert!(text.contains("FRAME: ") && text.contains("burn") && text.contains(" -> THREAD: "), "{text}");
        let file = File::create(directory.join("flamegraph.svg")).unwrap();
        report.flamegraph(file).unwrap();
    };
    let image = std::fs::read_to_string(directory.join("flamegraph.svg")).unwrap();
    assert!(image.starts_with("<svg") && image.contains("burn") && image.contains(" samples "), "{image}");

    if let Ok(report) = guard.report().build() {
        let file = File::create(directory.join("wide.svg")).unwrap();
        let mut options = pprof::flamegraph::Options::default();
        options.image_width = Some(2500);
        report.flamegraph_with_options(file, &mut options).unwrap();
    };
    assert!(std::fs::read_to_string(directory.join("wide.svg")).unwrap().contains("width=\"2500\""));

    fn frames_post_processor() -> impl Fn(&mut pprof::Frames) {
        move |frames| frames.thread_name = "PROCESSED".to_string()
    }
    let report = guard.report().frames_post_processor(frames_post_processor()).build().unwrap();
    assert!(report.data.keys().all(|frames| frames.thread_name_or_id() == "PROCESSED"), "{report:?}");

    match guard.report().build() {
        Ok(report) => {
            use pprof::protos::Message;
            let mut file = File::create(directory.join("profile.pb")).unwrap();
            let profile = report.pprof().unwrap();
            let mut content = Vec::new();
            profile.encode(&mut content).unwrap();
            file.write_all(&content).unwrap();
            let mut by_protobuf = Vec::new();
            profile.write_to_vec(&mut by_protobuf).unwrap();
            assert_eq!(by_protobuf, content);

            let data = decode::pprof::decode(&content, &DecodeLimits::default()).unwrap();
            let (_, decoded) = data.profiles().next().unwrap();
            assert_eq!((decoded.type_name(), decoded.period), ("cpu", 1_000_000));
            let counted: i64 = decoded.samples.iter().map(|sample| sample.total()).sum();
            assert_eq!(counted, report.data.values().sum::<isize>() as i64);
        }
        Err(error) => panic!("{error}"),
    };

    let unresolved = guard.report().build_unresolved().unwrap();
    let resolved: Vec<pprof::Frames> = unresolved.data.into_keys().map(pprof::Frames::from).collect();
    assert!(resolved.iter().any(|frames| frames.thread_id != 0));
    drop(guard);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn threads_are_separate_and_named() {
    let _serial = one_at_a_time();
    let guard = pprof::ProfilerGuard::new(1000).unwrap();
    let named = std::thread::Builder::new().name("THREAD_ONE".to_owned());
    // It lives until the report, which reads its name.
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let (burned, ready) = std::sync::mpsc::channel();
    let thread = named
        .spawn(move || {
            burn(Duration::from_millis(300));
            burned.send(()).unwrap();
            let _ = wait.recv();
        })
        .unwrap();
    ready.recv().unwrap();
    let report = guard.report().build().unwrap();
    let of_thread = |(frames, _): &(&pprof::Frames, &isize)| frames.thread_name == "THREAD_ONE";
    let samples: isize = report.data.iter().filter(of_thread).map(|(_, count)| count).sum();
    assert!((100..400).contains(&samples), "{report:?}");
    drop(done);
    thread.join().unwrap();
}

#[test]
fn there_is_one_guard_at_a_time_and_its_drop_stops_the_profiler() {
    let _serial = one_at_a_time();
    let guard = pprof::ProfilerGuard::new(100).unwrap();
    assert!(ProfilerHandle::running().is_some());
    let second = pprof::ProfilerGuard::new(100).err().unwrap();
    assert!(matches!(second, pprof::Error::Running), "{second}");
    drop(guard);
    assert!(ProfilerHandle::running().is_none());

    let guard = pprof::ProfilerGuard::new(1_000_000).unwrap();
    assert_eq!(guard.report().build().unwrap().timing.frequency, 10_000);
    ProfilerHandle::running().unwrap().stop();
    assert!(matches!(guard.report().build().err().unwrap(), pprof::Error::NotRunning));
}

#[test]
fn a_guard_collects_beside_a_running_profiler_and_a_pull() {
    let _serial = one_at_a_time();
    let receiver = Receiver200::start();
    let config = Config { pull: Some("127.0.0.1:0".to_owned()), thread_labels: false, ..with_receiver(&receiver) };
    let profiler = start_native(config).unwrap();
    burn(Duration::from_millis(200));
    let guard = pprof::ProfilerGuard::new(999).unwrap();
    let address = pull::address(&profiler);
    let pulled = std::thread::spawn(move || pull::status(&address, "/debug/pprof/profile?seconds=0.5"));
    burn(Duration::from_millis(600));
    assert_eq!(pulled.join().unwrap(), 200);
    let first: isize = guard.report().build().unwrap().data.values().sum();
    burn(Duration::from_millis(200));
    let report = guard.report().build().unwrap();
    let second: isize = report.data.values().sum();
    // At the rate of the profiler; 200 ms of the program were before the guard.
    assert_eq!(report.timing.frequency, 100);
    assert!((30..=110).contains(&first) && first < second && second <= 140, "{first}, then {second} samples");
    drop(guard);
    assert!(profiler.is_running());
    assert!(profiler.stop());
    let data = receiver.next(TIMEOUT).unwrap();
    let (_, profile) = data.profiles().next().unwrap();
    let sent: i64 = profile.samples.iter().map(|sample| sample.total()).sum();
    assert!(sent >= second as i64, "{sent} samples were sent");
    let threads = profile.samples.iter().flat_map(|sample| data.dictionary.attributes_of(sample.attributes));
    assert_eq!(threads.filter(|attribute| attribute.key == "thread.id").count(), 0);
}

#[test]
fn a_guard_beside_a_profiler_without_cpu_samples_is_an_error() {
    let _serial = one_at_a_time();
    let profiler = start_native(Config { cpu: false, wall: true, ..without_destination() }).unwrap();
    assert!(matches!(pprof::ProfilerGuard::new(100).err().unwrap(), pprof::Error::CreatingError));
    assert!(profiler.stop());
    // The error leaves no guard.
    drop(pprof::ProfilerGuard::new(100).unwrap());
}
