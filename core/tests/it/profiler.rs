//! The lifecycle of the profiler with real clocks, threads and destinations.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spanprof_aggregate::testing::FakeRuntime;
use spanprof_config::{Compression, Config, ConfigPatch, ConfigValue, Environment};
use spanprof_profile::{ProfilesData, Value};
use spanprof_profiler::{LogLevel, ProfilerHandle};
use spanprof_read::decode;
use spanprof_signal::MAX_PERIODS_AHEAD;

/// Starts the profiler with the runtime of native code; returns the handle of bindings, which has more methods.
pub fn start_native(config: Config) -> Result<ProfilerHandle, spanprof::Error> {
    let started = spanprof::Profiler::start(config)?;
    Ok(ProfilerHandle::running().unwrap_or_else(|| panic!("{:?} does not run", started.config().disabled_by)))
}

/// Serializes tests that start the profiler, of which a process has only one, and those that use CPU: the profiler samples
/// the threads of all tests.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A receiver of OTLP/HTTP that responds with 200 and returns the bodies.
pub struct Receiver200 {
    address: String,
    bodies: Receiver<Vec<u8>>,
}

impl Receiver200 {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (send, bodies) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                while let Some((head, body)) = read_request(&mut stream) {
                    assert!(head.contains("/v1development/profiles"), "{head}");
                    assert!(head.contains("otlp-profiles-development-version: 1"), "{head}");
                    let responded = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                    if send.send(body).is_err() || responded.is_err() {
                        return;
                    }
                }
            }
        });
        Self { address, bodies }
    }

    pub fn next(&self, timeout: Duration) -> Option<ProfilesData> {
        let body = self.bodies.recv_timeout(timeout).ok()?;
        Some(decode::otlp::decode(&body, &decode::DecodeLimits::default()).unwrap())
    }
}

/// The head of a request, in lower case, and its body.
pub fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?.to_ascii_lowercase();
    let length: usize = head.split("content-length:").nth(1)?.split("\r\n").next()?.trim().parse().ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// The lines of the profiler's log until it is dropped.
pub struct CapturedLog(Arc<Mutex<Vec<(LogLevel, String)>>>);

impl CapturedLog {
    pub fn begin() -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        spanprof_profiler::set_log_callback(Some(Arc::new(move |level, line: &str| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).push((level, line.to_owned()));
        })));
        Self(lines)
    }

    /// The lines so far.
    pub fn lines(&self) -> Vec<(LogLevel, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Their texts.
    pub fn texts(&self) -> Vec<String> {
        self.lines().into_iter().map(|(_, line)| line).collect()
    }
}

impl Drop for CapturedLog {
    fn drop(&mut self) {
        spanprof_profiler::set_log_callback(None);
    }
}

/// Waits until a condition is true; fails after [`TIMEOUT`].
pub fn wait_until(condition: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_true() {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {condition}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Timeout of tests, generous for loaded machines.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A configuration without destinations.
pub fn without_destination() -> Config {
    Config {
        destinations: Some(Vec::new()),
        service_name: "test".to_owned(),
        stop_timeout: TIMEOUT,
        ..Config::default()
    }
}

/// A configuration with this receiver.
pub fn with_receiver(receiver: &Receiver200) -> Config {
    Config {
        endpoint: Some(receiver.address.clone()),
        compression: Compression::Uncompressed,
        timeout: TIMEOUT,
        // Windows end by request only, also in a slow run.
        upload_interval: Duration::from_secs(3600),
        stop_timeout: TIMEOUT,
        ..Config::default()
    }
}

/// Uses CPU time of the calling thread until a condition is true; fails after two seconds of CPU time. Ticks are rare on an
/// oversubscribed processor.
pub fn burn_until(condition: &str, is_true: impl Fn() -> bool) {
    for _ in 0..100 {
        if is_true() {
            return;
        }
        burn(Duration::from_millis(20));
    }
    panic!("not after two seconds of CPU time: {condition}");
}

/// At 100 Hz.
const MAX_AHEAD_NS: u64 = MAX_PERIODS_AHEAD * 10_000_000;

/// Compares the total of a run's profiles with that of its samples, and the latter with the CPU time of the host.
pub fn check_total(profiler: &ProfilerHandle, total_ns: i64, host_ns: u64) {
    let stats = profiler.stats();
    let unattributed_ns = stats.counter("samples.unseen_distributed_ns") + stats.counter("samples.unseen_shown_ns");
    let sampled_ns = stats.counter("samples.cpu_ns") + unattributed_ns;
    // Remainders: up to a period of 20 ms of each of three threads.
    assert!(total_ns.abs_diff(sampled_ns as i64) < 60_000_000, "{total_ns} ns in profiles, {sampled_ns} in samples");
    // The time of a thread since its last sample is in no window; it is longer on a loaded machine. Estimated CPU time is ahead
    // where a hypervisor steals the processor.
    assert!(sampled_ns < host_ns + MAX_AHEAD_NS && sampled_ns > host_ns / 2, "{sampled_ns} of {host_ns} ns");
}

/// Uses CPU time of the calling thread.
pub fn burn(cpu: Duration) -> u64 {
    let begun = spanprof_os::current_thread_cpu_ns();
    let mut mixed = begun | 1;
    while spanprof_os::current_thread_cpu_ns() - begun < cpu.as_nanos() as u64 {
        let mut round = 0;
        // Operators only, so that a build without optimization has no calls here.
        while round < 20_000 {
            mixed ^= mixed << 13;
            mixed ^= mixed >> 7;
            mixed ^= mixed << 17;
            round += 1;
        }
    }
    mixed
}

#[test]
fn a_native_program_sends_labelled_stacks_and_exact_totals() {
    let _serial = one_at_a_time();
    let receiver = Receiver200::start();
    let config = Config { service_name: "native-test".to_owned(), ..with_receiver(&receiver) };
    let profiler = start_native(config).unwrap();
    let host_cpu_ns = || spanprof_os::process_cpu_ns() - spanprof_os::own_cpu_ns();
    let host_before = host_cpu_ns();
    let trace = [("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"), ("span_id", "00f067aa0ba902b7"), ("route", "/burn")];
    spanprof::tag_wrapper(trace, || burn(Duration::from_millis(600)));
    burn(Duration::from_millis(400));
    assert!(profiler.stop(), "everything was delivered");
    let host_ns = host_cpu_ns() - host_before;

    let data = receiver.next(TIMEOUT).expect("a request");
    let (resource, profile) = data.profiles().next().expect("a profile");
    assert_eq!(resource.service_name(), "native-test");
    assert_eq!((profile.sample_type.kind.as_str(), profile.sample_type.unit.as_str()), ("samples", "count"));
    assert_eq!(profile.period, 10_000_000);
    let total_ns: i64 = profile.samples.iter().map(|sample| profile.weight(sample)).sum();
    check_total(&profiler, total_ns, host_ns);

    let labelled: Vec<_> = profile
        .samples
        .iter()
        .filter(|sample| {
            let mut attributes = data.dictionary.attributes_of(sample.attributes);
            attributes.any(|label| label.key == "route" && label.value == Value::String("/burn"))
        })
        .collect();
    assert!(labelled.iter().all(|sample| data.dictionary.get_link(sample.link).span_id[7] == 0xb7));
    let labelled_ns: i64 = labelled.iter().map(|sample| profile.weight(sample)).sum();
    // Less than 600 ms by the interval that ended after the scope, which is longer on a loaded machine. More by the interval
    // that began before it, and by estimates.
    assert!(
        (300_000_000..620_000_000 + MAX_AHEAD_NS as i64).contains(&labelled_ns),
        "{labelled_ns} of 1,000,000,000 ns carry the label"
    );
    // Only the leaf is checked, because the build of this test may lack frame pointers.
    let in_burn = labelled.iter().filter(|sample| {
        let leaf = data.dictionary.get_stack(sample.stack).first().copied().unwrap_or_default();
        data.dictionary.get_location(leaf).lines.iter().any(|line| {
            let function = data.dictionary.get_function(line.function);
            let name = data.dictionary.get_string(function.name);
            name.contains("burn") && data.dictionary.get_string(function.filename).ends_with("profiler.rs")
        })
    });
    let in_burn_ns: i64 = in_burn.map(|sample| profile.weight(sample)).sum();
    assert!(in_burn_ns > 100_000_000, "{in_burn_ns} ns are charged to `burn`");
    let stats = profiler.stats();
    assert_eq!(stats.counter("export.0.sent"), 1);
    assert!(stats.counter("samples.cpu") > 20, "{stats:?}");
    assert!(!profiler.is_running());

    // Receivers find the file and the function of each native frame.
    let program = std::env::current_exe().unwrap();
    let build_ids = data.profiles().flat_map(|(_, profile)| &profile.samples).find_map(|sample| {
        let mut locations = data.dictionary.get_stack(sample.stack).iter().map(|id| data.dictionary.get_location(*id));
        let location = locations.find(|location| location.address != 0)?;
        let mapping = data.dictionary.get_mapping(location.mapping);
        assert!((mapping.memory_start..mapping.memory_limit).contains(&location.address));
        let is_of_program = data.dictionary.get_string(mapping.filename) == program.to_str().unwrap();
        is_of_program.then_some(mapping.attributes)
    });
    let keys = data.dictionary.attributes_of(build_ids.expect("an address in the program"));
    let keys: Vec<_> = keys.map(|attribute| attribute.key).collect();
    assert_eq!(keys, ["process.executable.build_id.gnu", "process.executable.build_id.htlhash"]);
}

#[test]
fn totals_are_exact_with_threads_that_live_shorter_than_a_period() {
    let _serial = one_at_a_time();
    let receiver = Receiver200::start();
    let profiler = start_native(with_receiver(&receiver)).unwrap();
    let host_cpu_ns = || spanprof_os::process_cpu_ns() - spanprof_os::own_cpu_ns();
    let host_before = host_cpu_ns();
    for _ in 0..300 {
        std::thread::spawn(|| burn(Duration::from_millis(3))).join().unwrap();
    }
    assert!(profiler.stop());
    let host_ns = (host_cpu_ns() - host_before) as f64;
    let data = receiver.next(TIMEOUT).expect("a request");
    let total_ns: i64 = data.profiles().flat_map(|(_, p)| p.samples.iter().map(|sample| p.weight(sample))).sum();
    let ratio = total_ns as f64 / host_ns;
    assert!((0.95..1.02).contains(&ratio), "{total_ns} of {host_ns} ns: {ratio}");
}

#[test]
fn a_thousand_starts_and_stops_from_four_threads_leak_no_thread_and_no_file() {
    let _serial = one_at_a_time();
    // Other tests run in this process: only threads and files that may be the profiler's are counted.
    let entries = |directory| std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
    let threads_now = || {
        let names = entries("/proc/self/task").filter_map(|task| std::fs::read_to_string(task.join("comm")).ok());
        names.filter(|name| name.starts_with("spanprof")).count()
    };
    let files_now = || {
        let targets = entries("/proc/self/fd").filter_map(|file| std::fs::read_link(file).ok());
        targets.filter(|target| !target.to_string_lossy().starts_with('/')).count()
    };
    // The first start allocates resources that live as long as the process.
    ProfilerHandle::start_with_runtime(without_destination(), FakeRuntime::new()).unwrap().stop();
    let files = files_now();
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            std::thread::spawn(move || {
                for cycle in 0..250 {
                    let profiler =
                        ProfilerHandle::start_with_runtime(without_destination(), FakeRuntime::new()).unwrap();
                    match (worker + cycle) % 4 {
                        0 => drop(profiler.update(&ConfigPatch(vec![("sample_rate".into(), ConfigValue::Int(50))]))),
                        1 => drop(profiler.flush(Duration::from_millis(50))),
                        2 => drop(profiler.stats()),
                        _ => burn(Duration::from_micros(200)).to_string().clear(),
                    }
                    assert!(profiler.stop());
                    assert!(profiler.stop(), "a second stop does nothing");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    assert!(ProfilerHandle::running().is_none());
    let deadline = Instant::now() + TIMEOUT;
    while threads_now() > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(threads_now(), 0, "threads of the profiler");
    assert!(files_now() <= files, "{} files, {files} before", files_now());
}

#[test]
fn flush_sends_the_open_window_and_sampling_continues() {
    let _serial = one_at_a_time();
    let receiver = Receiver200::start();
    let profiler = start_native(with_receiver(&receiver)).unwrap();
    for sent in 1..=2 {
        // A window of less than one period has no samples and is not sent.
        burn_until("a window was sent", || {
            assert!(profiler.flush(TIMEOUT));
            let stats = profiler.stats();
            assert_eq!(
                stats.counter("export.0.enqueued"),
                stats.counter("export.0.sent"),
                "sent before flush returned"
            );
            stats.counter("export.0.sent") >= sent
        });
        assert!(receiver.next(TIMEOUT).is_some());
    }
    assert!(profiler.is_running());
    profiler.stop();
}

#[test]
fn an_unreachable_receiver_delays_stop_at_most_until_its_deadline() {
    let _serial = one_at_a_time();
    let before = spanprof_signal::counters::samples();
    let config = Config {
        // Nothing listens on port 1.
        endpoint: Some("http://127.0.0.1:1".to_owned()),
        stop_timeout: Duration::from_millis(300),
        ..Config::default()
    };
    let profiler = start_native(config).unwrap();
    // Several: the first may hold less than one period, which is not sent.
    burn_until("samples", || spanprof_signal::counters::samples() > before + 5);
    let begun = Instant::now();
    assert!(!profiler.stop(), "nothing was delivered");
    // Without the deadline it would wait for the timeout of a request, 10 s.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let stats = profiler.stats();
    assert_eq!(stats.counter("export.0.dropped_deadline"), 1);
    assert!(stats.counter("export.0.dropped_samples") > 0);
}

#[test]
fn the_first_window_logs_one_line_to_the_hosts_logger() {
    let _serial = one_at_a_time();
    let log = CapturedLog::begin();
    let receiver = Receiver200::start();
    let config = Config { upload_interval: Duration::from_millis(200), ..with_receiver(&receiver) };
    let profiler = start_native(config).unwrap();
    wait_until("a line is logged", || {
        burn(Duration::from_millis(50));
        !log.lines().is_empty()
    });
    burn(Duration::from_millis(600));
    profiler.stop();
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let (level, end) = &lines[1];
    assert_eq!(*level, LogLevel::Info, "{end}");
    assert!(end.starts_with("spanprof: stopped after ") && end.contains("delivered to"), "{end}");
    let (level, line) = &lines[0];
    assert_eq!(*level, LogLevel::Info, "{line}");
    assert!(line.starts_with("spanprof: first window: "), "{line}");
    // On an oversubscribed machine a tick may be late.
    assert!(line.contains("clock ") && (line.contains("nothing lost") || line.contains(" late_tick")), "{line}");
    assert!(line.contains(&format!("delivered to {}", receiver.address)), "{line}");
}

#[test]
fn a_kill_switch_returns_a_profiler_that_does_nothing() {
    let _serial = one_at_a_time();
    let environment: Environment = [("SPANPROF_DISABLED".to_owned(), "1".to_owned())].into_iter().collect();
    let config = Config::load(&[], &environment).unwrap();
    let profiler = spanprof::Profiler::start(config).unwrap();
    assert!(!profiler.is_running() && profiler.stop() && profiler.flush(Duration::ZERO));
    assert_eq!(
        profiler.stats().get("state"),
        Some(&spanprof_aggregate::StatValue::Text("disabled by SPANPROF_DISABLED".into()))
    );
    assert!(ProfilerHandle::running().is_none());
}

#[test]
fn an_open_scope_keeps_its_span_over_a_million_newer_requests() {
    use spanprof_aggregate::context::{context_row, open_context, with_labels, ContextRow};
    let _serial = one_at_a_time();
    let trace = [("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"), ("span_id", "00f067aa0ba902b7"), ("job", "nightly")];
    let own_row = with_labels(ContextRow::default(), &trace);
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    let mut in_future = 0;
    let work = spanprof::tag_future(
        trace,
        std::future::poll_fn(|_| {
            in_future = spanprof_os::thread_context::current();
            std::task::Poll::<()>::Pending
        }),
    );
    let mut work = Box::pin(work);
    assert!(std::future::Future::poll(work.as_mut(), &mut task).is_pending());
    let in_scope = spanprof::tag_wrapper(trace, || {
        let id = spanprof_os::thread_context::current();
        for number in 0..1_000_000u64 {
            open_context(ContextRow {
                link: spanprof_aggregate::context::Link { trace_id: [7; 16], span_id: (number + 1).to_be_bytes() },
                ..ContextRow::default()
            });
        }
        assert_eq!(context_row(id), Some(own_row));
        id
    });
    drop(work);
    assert!(in_future != 0 && in_future != in_scope);
    assert_eq!(context_row(in_future), Some(own_row), "a suspended future keeps its context");
}
