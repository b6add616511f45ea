//! Export in forked children: each process delivers its own samples over its own connection, and a child keeps only the
//! documented descriptors of the parent. Beside the code that is unsafe, as fork is.

use super::fork_live_tests::in_forked_child;
use spanprof_aggregate::runtime::{Frame, Runtime, WallRuntime};
use spanprof_aggregate::testing::FakeRuntime;
use spanprof_config::{Config, DestinationConfig, DestinationType};
use spanprof_os::testing::{one_at_a_time, StopOnDrop};
use spanprof_profiler::ProfilerHandle;
use spanprof_read::decode;
use spanprof_signal::{
    CaptureFn, CaptureOtherFn, Captured, Context, DropReason, RawFrame, RawSample, SampleFlags, SampleKind,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Responds 200 to every request; sends the connection number and the lock delay in the body (ns) to the test.
fn receiver() -> (String, Receiver<(usize, i64)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for (connection, stream) in listener.incoming().flatten().enumerate() {
            let sender = sender.clone();
            std::thread::spawn(move || serve(stream, connection, &sender));
        }
    });
    (address, requests)
}

fn serve(mut stream: TcpStream, connection: usize, sender: &Sender<(usize, i64)>) -> Option<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).ok()?.to_ascii_lowercase();
        let length = head.split("content-length:").nth(1)?.split("\r\n").next()?.trim().parse().ok()?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        let data = decode::otlp::decode(&body, &decode::DecodeLimits::default()).ok()?;
        let of_delay = data.profiles().filter(|(_, profile)| profile.type_name() == "delay");
        let delays = of_delay.flat_map(|(_, profile)| profile.samples.iter().map(|sample| sample.total()));
        sender.send((connection, delays.sum())).ok()?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

fn submit(profiler: &ProfilerHandle, code: u64, delay_ns: u64) -> bool {
    let sample = RawSample {
        kind: SampleKind::Lock,
        flags: SampleFlags(0),
        thread_id: spanprof_os::thread_id(),
        time_ns: spanprof_os::monotonic_ns(),
        values: [delay_ns, 1],
        key: 0,
        context: Context::None,
        frames: &[RawFrame { code, at: 0 }],
    };
    profiler.submit(&sample).is_ok()
}

/// Number of sockets, and of event loop descriptors.
fn descriptors() -> (usize, usize) {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets: Vec<_> = links.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
    let count = |kind: &str| targets.iter().filter(|target| target.to_string_lossy().starts_with(kind)).count();
    (count("socket:"), count("anon_inode:"))
}

/// Without CPU samples, uncompressed for the test receiver, and with generous timeouts.
fn delivering_to(address: String) -> Config {
    Config {
        endpoint: Some(address),
        cpu: false,
        compression: spanprof_config::Compression::Uncompressed,
        timeout: TIMEOUT,
        stop_timeout: TIMEOUT,
        ..Config::default()
    }
}

#[test]
fn parent_and_child_deliver_their_own_samples_over_their_own_connections() {
    let _turn = one_at_a_time();
    let (address, requests) = receiver();
    let runtime = FakeRuntime::new();
    let code = runtime.code_of("waiting");
    let config = delivering_to(address);
    let before = descriptors();
    let parent = ProfilerHandle::start_with_runtime(config, runtime).unwrap();
    assert!(submit(&parent, code, 100) && parent.flush(TIMEOUT));
    assert_eq!(requests.recv_timeout(TIMEOUT), Ok((0, 100)));
    // Not sent yet: delivered by the parent only.
    assert!(submit(&parent, code, 1));
    let ended = in_forked_child(|| {
        let inherited = descriptors();
        // Both ends of the parent's one connection, since the receiver is in this process, and no event loop.
        if inherited.0 > before.0 + 2 || inherited.1 > before.1 {
            return 1;
        }
        let Some(own) = ProfilerHandle::after_fork_in_child() else { return 2 };
        if !submit(&own, code, 10_000) || !own.flush(TIMEOUT) {
            return 3;
        }
        if own.stats().counter("export.0.sent") != 1 || !own.stop() {
            return 4;
        }
        // The child's export threads close their descriptors shortly after the stop.
        for _ in 0..10_000 {
            if descriptors() == inherited {
                return 0;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        5
    });
    assert_eq!(ended, Some(0));
    assert_eq!(requests.recv_timeout(TIMEOUT), Ok((1, 10_000)), "the child's sample, over its own connection");
    assert!(submit(&parent, code, 1) && parent.stop());
    assert_eq!(requests.recv_timeout(TIMEOUT), Ok((0, 2)), "the parent's samples, once, over its existing connection");
    assert!(requests.try_recv().is_err(), "no sample was sent twice");
}

/// Replaces every descriptor from `first` on with `files`, as a program does that becomes a daemon.
fn replace_descriptors(first: i32, files: &[std::fs::File]) {
    for descriptor in first..256 {
        if files.iter().all(|file| file.as_raw_fd() != descriptor) {
            // SAFETY: replaces descriptors whose owners verify them before use.
            assert!(unsafe { libc::dup2(files[descriptor as usize % files.len()].as_raw_fd(), descriptor) } >= 0);
        }
    }
}

fn is_untouched(first: i32, file: &std::fs::File) -> bool {
    // SAFETY: reads descriptor flags.
    let are_open = (first..256).all(|descriptor| unsafe { libc::fcntl(descriptor, libc::F_GETFD) } >= 0);
    are_open && file.metadata().is_ok_and(|now| now.len() == 0)
}

#[test]
fn a_program_that_replaces_every_descriptor_keeps_its_files_and_its_profiler() {
    let _turn = one_at_a_time();
    let (address, requests) = receiver();
    let runtime = FakeRuntime::new();
    let code = runtime.code_of("waiting");
    let config = delivering_to(address);
    let parent = ProfilerHandle::start_with_runtime(config, runtime).unwrap();
    assert!(submit(&parent, code, 1) && parent.flush(TIMEOUT));
    let directory = TemporaryDirectory(std::env::temp_dir().join(format!("spanprof-replaced-{}", std::process::id())));
    std::fs::create_dir(&directory.0).unwrap();
    let ended = in_forked_child(|| {
        let Some(own) = ProfilerHandle::after_fork_in_child() else { return 1 };
        if !submit(&own, code, 10) || !own.flush(TIMEOUT) {
            return 2;
        }
        let files = [std::fs::File::create(directory.0.join("theirs")).unwrap()];
        replace_descriptors(3, &files);
        if !submit(&own, code, 100) || !own.flush(TIMEOUT) {
            return 3;
        }
        if !submit(&own, code, 1_000) || !own.stop() {
            return 4;
        }
        std::thread::sleep(Duration::from_millis(100));
        i32::from(!is_untouched(3, &files[0])) * 5
    });
    assert_eq!(ended, Some(0));
    let delays: Vec<_> = (0..4).map(|_| requests.recv_timeout(TIMEOUT).unwrap().1).collect();
    assert_eq!(delays, [1, 10, 100, 1_000]);
    assert!(parent.stop());
}

#[test]
fn a_child_buffers_in_its_own_directory_and_does_not_keep_the_parents_lock() {
    let _turn = one_at_a_time();
    let directory = TemporaryDirectory(std::env::temp_dir().join(format!("spanprof-buffer-{}", std::process::id())));
    let runtime = FakeRuntime::new();
    let code = runtime.code_of("waiting");
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = Config {
        buffer_directory: Some(directory.0.to_string_lossy().into_owned()),
        ..delivering_to(format!("http://{unused}"))
    };
    let locks = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        links
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .filter(|path| path.starts_with(&directory.0))
            .count()
    };
    let parent = ProfilerHandle::start_with_runtime(config, runtime).unwrap();
    // No thread works on the files any more once the request is stored. Such a thread would keep the descriptor in the child.
    assert!(submit(&parent, code, 1) && !parent.flush(Duration::from_millis(100)));
    let until = std::time::Instant::now() + TIMEOUT;
    while parent.stats().counter("export.0.buffer_payloads") != 1 {
        assert!(std::time::Instant::now() < until, "{:?}", parent.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = in_forked_child(|| {
        if locks() != 1 {
            return 1;
        }
        let Some(own) = ProfilerHandle::after_fork_in_child() else { return 2 };
        // The search for requests of exited processes opens further directories for a moment.
        let until = std::time::Instant::now() + TIMEOUT;
        while locks() != 1 {
            if std::time::Instant::now() > until {
                return 3;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // The receiver refuses the connection, so the request stays on disk.
        i32::from(!submit(&own, code, 10) || own.stop() || own.stats().counter("export.0.buffer_left") != 1) * 4
    });
    assert_eq!(ended, Some(0));
    assert!(submit(&parent, code, 1) && !parent.stop());
    let stats = parent.stats();
    assert_eq!((stats.counter("export.0.buffer_left"), stats.counter("export.0.buffer_adopted")), (2, 0));
    let shared = std::fs::read_dir(&directory.0).unwrap().next().unwrap().unwrap().path();
    assert_eq!(std::fs::read_dir(shared).unwrap().count(), 2, "one directory per process");
}

/// A directory that is removed on drop.
struct TemporaryDirectory(std::path::PathBuf);

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_child_samples_and_writes_files_although_the_parents_threads_were_starting_and_ending() {
    let _turn = one_at_a_time();
    let directory = TemporaryDirectory(std::env::temp_dir().join(format!("spanprof-fork-{}", std::process::id())));
    let mut files = DestinationConfig::new(DestinationType::File);
    files.directory = Some(directory.0.to_string_lossy().into_owned());
    let config =
        Config { destinations: Some(vec![files]), cpu: false, wall: true, stop_timeout: TIMEOUT, ..Config::default() };
    let runtime = Arc::new(WalkableRuntime(FakeRuntime::new()));
    let code = runtime.0.code_of("waiting");
    let parent = ProfilerHandle::start_with_runtime(config, runtime).unwrap();
    let running = AtomicBool::new(true);
    let mut codes = Vec::new();
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&running);
        for _ in 0..2 {
            scope.spawn(|| {
                while running.load(Ordering::Relaxed) {
                    std::thread::spawn(|| {}).join().unwrap();
                }
            });
        }
        // Stops at the first failure: a hang would repeat.
        while codes.len() < 20 && codes.iter().all(|code| *code == Some(0)) {
            codes.push(in_forked_child(|| {
                let Some(own) = ProfilerHandle::after_fork_in_child() else { return 1 };
                if !submit(&own, code, 10_000) || !own.flush(TIMEOUT) {
                    return 2;
                }
                if own.stats().counter("export.0.sent") == 0 {
                    return 3;
                }
                i32::from(!own.stop()) * 4
            }));
        }
    });
    assert_eq!(codes, vec![Some(0); 20]);
    assert!(parent.stop());
}

/// Supports the wall sampler, without threads to walk.
struct WalkableRuntime(Arc<FakeRuntime>);

impl Runtime for WalkableRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        self.0.resource_attributes()
    }

    fn capture(&self) -> CaptureFn {
        self.0.capture()
    }

    fn resolve(&self, frame: RawFrame, position: u64, out: &mut Vec<Frame>) {
        self.0.resolve(frame, position, out);
    }

    fn after_fork_in_child(&self) {
        self.0.after_fork_in_child();
    }

    fn wall(&self) -> Option<&dyn WallRuntime> {
        Some(self)
    }
}

impl WallRuntime for WalkableRuntime {
    fn capture_other(&self) -> Option<CaptureOtherFn> {
        Some(|_, _, _| Captured::Dropped(DropReason::NoThreadState))
    }
}
