//! What a thread waits for: the reason that the profiler recorded as the leaf frame of a wait, and what the names of the functions
//! that wait add to it.
//!
//! The recorded reason follows from the system call in which the thread waits, so it is coarse: all that ends in a futex is
//! `[lock]`, all that waits for a descriptor `[I/O]`. Names only refine it. They never contradict it, except for
//! `Thread.sleep` of HotSpot, which waits on a futex. A name counts where it is the innermost function that is not native code, or
//! where the innermost one is in the table too: `[lock]` below the loading of a class is no wait of the queue that loaded it.
//!
//! The names are recorded ones, of CPython 3.11 and OpenJDK 17 (`off_cpu` and `wall` of a program with one thread per kind of wait),
//! and those that other versions have in their place: qualified names exist since CPython 3.11; `Object.wait0` and
//! `Thread.sleep0` since JDK 21; `SocketInputStream` until JDK 12. Those of Node.js are functions of `node:fs` and
//! `node:child_process` that block, those of Rust paths of its standard library, `parking_lot` and the C library.

use super::{is_shared_object, CodeOrigin};

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitReason {
    /// A lock that another thread holds.
    Lock,
    /// A condition, a queue, a semaphore, a latch or the result of a task.
    Condition,
    /// One of both: the thread waits on a futex.
    LockOrCondition,
    /// A socket, or the resolution of a name.
    Socket,
    /// A file or a pipe.
    File,
    /// A descriptor of any kind, or several of them.
    Io,
    /// A time.
    Sleep,
    /// The end or the output of a child process.
    ChildProcess,
    /// A processor: the thread could run.
    NoProcessor,
    /// What an asynchronous task awaits.
    Await,
    /// Nothing tells.
    Unknown,
}

/// The frames of reasons, as of `SyntheticFrame` in the crate `spanprof-signal`.
const RECORDED: [(&str, WaitReason); 5] = [
    ("[lock]", WaitReason::LockOrCondition),
    ("[I/O]", WaitReason::Io),
    ("[sleep]", WaitReason::Sleep),
    ("[scheduled out]", WaitReason::NoProcessor),
    ("[await]", WaitReason::Await),
];

/// Files of CPython's standard library, with functions that wait.
const PYTHON: [(&str, &[&str], WaitReason); 14] = [
    ("/threading.py", &["wait"], WaitReason::Condition),
    ("/socket.py", &["readinto", "accept", "create_connection", "getaddrinfo"], WaitReason::Socket),
    ("/ssl.py", &["read", "recv", "recv_into", "send", "write", "do_handshake"], WaitReason::Socket),
    ("/selectors.py", &["select"], WaitReason::Io),
    ("/subprocess.py", &["wait", "_wait", "_try_wait", "_communicate", "communicate"], WaitReason::ChildProcess),
    ("/asyncio/unix_events.py", &["_do_waitpid"], WaitReason::ChildProcess),
    ("/asyncio/tasks.py", &["sleep"], WaitReason::Sleep),
    ("/asyncio/locks.py", &["acquire", "wait"], WaitReason::Condition),
    ("/asyncio/queues.py", &["get", "put", "join"], WaitReason::Condition),
    ("/asyncio/streams.py", &["_wait_for_data", "_drain_helper", "drain"], WaitReason::Socket),
    ("/asyncio/selector_events.py", &["sock_recv", "sock_connect", "sock_accept"], WaitReason::Socket),
    ("/anyio/_backends/_asyncio.py", &["receive", "send", "connect_tcp"], WaitReason::Socket),
    ("/multiprocessing/popen_fork.py", &["poll", "wait"], WaitReason::ChildProcess),
    ("/multiprocessing/connection.py", &["_recv", "_send", "wait"], WaitReason::Io),
];

/// Prefixes of methods of the JDK.
const JAVA: [(&str, WaitReason); 37] = [
    ("jdk.internal.misc.Unsafe.park", WaitReason::LockOrCondition),
    ("sun.misc.Unsafe.park", WaitReason::LockOrCondition),
    ("java.lang.Object.wait", WaitReason::Condition),
    ("java.lang.Thread.sleep", WaitReason::Sleep),
    ("java.util.concurrent.locks.ReentrantLock", WaitReason::Lock),
    ("java.util.concurrent.locks.ReentrantReadWriteLock", WaitReason::Lock),
    ("java.util.concurrent.locks.StampedLock.", WaitReason::Lock),
    ("java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.await", WaitReason::Condition),
    ("java.util.concurrent.locks.AbstractQueuedLongSynchronizer$ConditionObject.await", WaitReason::Condition),
    ("java.util.concurrent.SynchronousQueue", WaitReason::Condition),
    ("java.util.concurrent.LinkedTransferQueue", WaitReason::Condition),
    ("java.util.concurrent.Semaphore.", WaitReason::Condition),
    ("java.util.concurrent.CountDownLatch.await", WaitReason::Condition),
    ("java.util.concurrent.Exchanger.", WaitReason::Condition),
    ("java.util.concurrent.CompletableFuture.get", WaitReason::Condition),
    ("java.util.concurrent.CompletableFuture.join", WaitReason::Condition),
    ("java.util.concurrent.FutureTask.get", WaitReason::Condition),
    ("java.util.concurrent.ForkJoinTask.get", WaitReason::Condition),
    ("java.util.concurrent.ForkJoinTask.join", WaitReason::Condition),
    ("sun.nio.ch.SocketDispatcher.", WaitReason::Socket),
    ("sun.nio.ch.DatagramDispatcher.", WaitReason::Socket),
    ("sun.nio.ch.SocketChannelImpl.", WaitReason::Socket),
    ("sun.nio.ch.NioSocketImpl.", WaitReason::Socket),
    ("sun.nio.ch.Net.", WaitReason::Socket),
    ("java.net.SocketInputStream.", WaitReason::Socket),
    ("java.net.SocketOutputStream.", WaitReason::Socket),
    ("java.net.PlainSocketImpl.", WaitReason::Socket),
    ("java.net.Inet6AddressImpl.lookupAllHostAddr", WaitReason::Socket),
    ("java.net.Inet4AddressImpl.lookupAllHostAddr", WaitReason::Socket),
    ("sun.nio.ch.EPoll.wait", WaitReason::Io),
    ("sun.nio.ch.FileChannelImpl.", WaitReason::File),
    ("java.io.FileInputStream.", WaitReason::File),
    ("java.io.FileOutputStream.", WaitReason::File),
    ("java.io.RandomAccessFile.", WaitReason::File),
    ("sun.nio.fs.UnixNativeDispatcher.", WaitReason::File),
    ("java.lang.ProcessImpl.waitFor", WaitReason::ChildProcess),
    ("java.lang.ProcessHandleImpl.waitForProcessExit0", WaitReason::ChildProcess),
];

/// Parts of paths of Rust's standard library, of `parking_lot`, and of futures of tokio 1, hyper-util and reqwest. Names have the type
/// with or without its trait.
const RUST: [(&str, WaitReason); 23] = [
    ("tokio::time::sleep", WaitReason::Sleep),
    ("tokio::time::interval", WaitReason::Sleep),
    ("tokio::sync::batch_semaphore", WaitReason::LockOrCondition),
    ("tokio::sync::notify", WaitReason::Condition),
    ("tokio::sync::mpsc", WaitReason::Condition),
    ("tokio::sync::oneshot", WaitReason::Condition),
    ("tokio::runtime::io", WaitReason::Socket),
    ("hyper_util::client", WaitReason::Socket),
    ("reqwest::", WaitReason::Socket),
    ("Condvar::wait", WaitReason::Condition),
    ("mpsc::Receiver<", WaitReason::Condition),
    ("Mutex::lock_contended", WaitReason::Lock),
    ("RwLock::read_contended", WaitReason::Lock),
    ("RwLock::write_contended", WaitReason::Lock),
    ("RawMutex::lock_slow", WaitReason::Lock),
    ("RawRwLock::lock_", WaitReason::Lock),
    ("futex::futex_wait", WaitReason::LockOrCondition),
    ("std::thread::park", WaitReason::LockOrCondition),
    ("std::thread::sleep", WaitReason::Sleep),
    ("std::net::", WaitReason::Socket),
    ("std::os::unix::net::", WaitReason::Socket),
    ("std::fs::File", WaitReason::File),
    ("std::process::Child", WaitReason::ChildProcess),
];

/// Functions of the C library.
const NATIVE: [(&str, WaitReason); 24] = [
    ("pthread_mutex_lock", WaitReason::Lock),
    ("__pthread_mutex_lock", WaitReason::Lock),
    ("__lll_lock_wait", WaitReason::Lock),
    ("flock", WaitReason::Lock),
    ("pthread_cond_wait", WaitReason::Condition),
    ("pthread_cond_timedwait", WaitReason::Condition),
    ("sem_wait", WaitReason::Condition),
    ("sem_timedwait", WaitReason::Condition),
    ("recv", WaitReason::Socket),
    ("recvfrom", WaitReason::Socket),
    ("recvmsg", WaitReason::Socket),
    ("send", WaitReason::Socket),
    ("sendto", WaitReason::Socket),
    ("sendmsg", WaitReason::Socket),
    ("accept", WaitReason::Socket),
    ("accept4", WaitReason::Socket),
    ("connect", WaitReason::Socket),
    ("getaddrinfo", WaitReason::Socket),
    ("fsync", WaitReason::File),
    ("fdatasync", WaitReason::File),
    ("epoll_wait", WaitReason::Io),
    ("poll", WaitReason::Io),
    ("nanosleep", WaitReason::Sleep),
    ("waitpid", WaitReason::ChildProcess),
];

impl WaitReason {
    /// The reason of a wait: of a stack of the type `off_cpu`, or of the part of `wall` that is not CPU time. Frames are the name, the
    /// file and the origin of each function, leaf first.
    pub fn of_stack<'f>(leaf_first: impl Iterator<Item = (&'f str, &'f str, CodeOrigin)>) -> Self {
        let mut frames = leaf_first.take_while(|(.., origin)| *origin != CodeOrigin::Own).peekable();
        let of_leaf = frames.peek().and_then(|(function, file, _)| Self::recorded(function, file));
        // The loop passes over the frame of the reason, which is of the runtime.
        let mut reason = of_leaf.unwrap_or(Self::Unknown);
        // A future polls others: the outermost one that is known says most, as a client that awaits a channel inside.
        let is_future = reason == Self::Await;
        let mut is_named = false;
        for (function, file, origin) in frames {
            match Self::named(function, file, origin) {
                Some(named) => {
                    is_named = true;
                    if is_future || named.refines(reason) {
                        reason = named;
                    }
                }
                // The function that waits is not known to wait for one thing.
                None if !is_named && !is_future && origin != CodeOrigin::Runtime && !is_shared_object(file) => break,
                None => {}
            }
        }
        reason
    }

    fn recorded(function: &str, file: &str) -> Option<Self> {
        let row = RECORDED.iter().find(|(name, _)| file.is_empty() && *name == function);
        row.map(|(_, reason)| *reason)
    }

    /// What a function waits for when it waits.
    fn named(function: &str, file: &str, origin: CodeOrigin) -> Option<Self> {
        if origin == CodeOrigin::Runtime {
            return NATIVE.iter().find(|(name, _)| *name == function).map(|(_, reason)| *reason);
        }
        if file.ends_with(".py") {
            let name = function.rsplit('.').next().unwrap_or_default();
            let row = PYTHON.iter().find(|(path, names, _)| file.ends_with(path) && names.contains(&name));
            return row.map(|(.., reason)| *reason);
        }
        if let Some(module) = file.strip_prefix("node:") {
            return match module.strip_prefix("internal/").unwrap_or(module) {
                "child_process" if function.ends_with("Sync") => Some(Self::ChildProcess),
                "fs" | "fs/read/context" | "fs/utils" if function.ends_with("Sync") => Some(Self::File),
                _ => None,
            };
        }
        if file.ends_with(".rs") {
            return RUST.iter().find(|(part, _)| function.contains(part)).map(|(_, reason)| *reason);
        }
        JAVA.iter().find(|(prefix, _)| function.starts_with(prefix)).map(|(_, reason)| *reason)
    }

    /// Whether this reason is one of those that a coarser one leaves open.
    fn refines(self, coarse: Self) -> bool {
        match coarse {
            Self::Unknown | Self::Await => true,
            Self::LockOrCondition => {
                matches!(self, Self::Lock | Self::Condition | Self::Sleep | Self::ChildProcess)
            }
            // `Process.waitFor` waits for a condition that the reaper of the process signals.
            Self::Condition => self == Self::ChildProcess,
            Self::Io => matches!(self, Self::Socket | Self::File | Self::ChildProcess),
            _ => false,
        }
    }

    /// Its word in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Condition => "condition",
            Self::LockOrCondition => "lock_or_condition",
            Self::Socket => "socket",
            Self::File => "file",
            Self::Io => "io",
            Self::Sleep => "sleep",
            Self::ChildProcess => "child_process",
            Self::NoProcessor => "no_processor",
            Self::Await => "await",
            Self::Unknown => "other",
        }
    }

    /// Its name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Lock => "Lock",
            Self::Condition => "Condition, queue or result",
            Self::LockOrCondition => "Lock, condition or queue",
            Self::Socket => "Network or local socket",
            Self::File => "File or pipe",
            Self::Io => "File, pipe or socket",
            Self::Sleep => "Sleep",
            Self::ChildProcess => "Child process",
            Self::NoProcessor => "No free processor",
            Self::Await => "Awaiting",
            Self::Unknown => "Other",
        }
    }

    /// The frame that the profiler records for stacks of the reason, and of the reasons that it does not separate from it; `None`
    /// where there is no such frame, or it differs between runtimes.
    pub const fn frame(self) -> Option<&'static str> {
        match self {
            Self::Lock | Self::Condition | Self::LockOrCondition => Some("[lock]"),
            Self::Socket | Self::File | Self::Io => Some("[I/O]"),
            Self::NoProcessor => Some("[scheduled out]"),
            Self::Await => Some("[await]"),
            Self::Sleep | Self::ChildProcess | Self::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrameType;

    /// The reason of a stack of names and files, leaf first.
    fn reason(stack: &[(&str, &str)], frame_type: FrameType) -> WaitReason {
        WaitReason::of_stack(stack.iter().map(|(function, file)| {
            let frame_type = if function.starts_with('[') { FrameType::Unspecified } else { frame_type };
            (*function, *file, CodeOrigin::of(function, file, frame_type))
        }))
    }

    #[test]
    fn waits_of_cpython_have_the_reason_of_the_function_that_waits() {
        // Recorded with CPython 3.11.
        for (recorded, waiting, expected) in [
            ("[lock]", &["Condition.wait threading", "Queue.get queue"][..], WaitReason::Condition),
            ("[lock]", &["Condition.wait threading", "Future.result concurrent/futures/_base"], WaitReason::Condition),
            ("[lock]", &["wait threading"], WaitReason::Condition),
            (
                "[lock]",
                &["Thread._wait_for_tstate_lock threading", "Thread.join threading"],
                WaitReason::LockOrCondition,
            ),
            ("[lock]", &[], WaitReason::LockOrCondition),
            // The thread has its bytes, and waits for the interpreter lock.
            ("[lock]", &["SocketIO.readinto socket"], WaitReason::LockOrCondition),
            ("[I/O]", &["SocketIO.readinto socket", "HTTPResponse._read_status http/client"], WaitReason::Socket),
            ("[I/O]", &["socket.accept socket"], WaitReason::Socket),
            ("[I/O]", &["Connection._recv multiprocessing/connection"], WaitReason::Io),
            (
                "[I/O]",
                &["EpollSelector.select selectors", "BaseEventLoop._run_once asyncio/base_events"],
                WaitReason::Io,
            ),
            ("[I/O]", &["Popen.communicate subprocess", "run subprocess"], WaitReason::ChildProcess),
            (
                "[I/O]",
                &["_PollLikeSelector.select selectors", "Popen._communicate subprocess"],
                WaitReason::ChildProcess,
            ),
            ("[I/O]", &[], WaitReason::Io),
            ("", &["Popen._try_wait subprocess", "Popen._wait subprocess"], WaitReason::ChildProcess),
            ("", &["ThreadedChildWatcher._do_waitpid asyncio/unix_events"], WaitReason::ChildProcess),
            ("", &["JSONDecoder.raw_decode json/decoder", "Popen.communicate subprocess"], WaitReason::Unknown),
            ("[sleep]", &["Condition.wait threading"], WaitReason::Sleep),
            ("[scheduled out]", &["Condition.wait threading"], WaitReason::NoProcessor),
        ] {
            let files: Vec<(String, String)> = waiting
                .iter()
                .map(|frame| {
                    let (name, file) = frame.split_once(' ').unwrap();
                    (name.to_owned(), format!("/usr/lib/python3.11/{file}.py"))
                })
                .collect();
            let mut stack: Vec<(&str, &str)> = Vec::new();
            stack.extend((!recorded.is_empty()).then_some((recorded, "")));
            stack.extend(files.iter().map(|(name, file)| (name.as_str(), file.as_str())));
            stack.push(("handle", "/srv/shop/app.py"));
            // Outside of own code: a worker of a pool waits no longer.
            stack.push(("Condition.wait", "/usr/lib/python3.11/threading.py"));
            assert_eq!(reason(&stack, FrameType::Cpython), expected, "{recorded} {waiting:?}");
        }
    }

    #[test]
    fn waits_of_the_java_vm_have_the_reason_of_the_method_that_waits() {
        // Recorded with OpenJDK 17.
        const PARK: [&str; 2] = ["jdk.internal.misc.Unsafe.park", "java.util.concurrent.locks.LockSupport.park"];
        const ACQUIRE: &str = "java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire";
        const AWAIT: &str = "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.awaitNanos";
        let parked = |callers: &[&'static str]| [&PARK[..], callers].concat();
        for (recorded, waiting, expected) in [
            ("[lock]", parked(&[ACQUIRE, "java.util.concurrent.locks.ReentrantLock$Sync.lock"]), WaitReason::Lock),
            (
                "[lock]",
                parked(&[ACQUIRE, "java.util.concurrent.locks.ReentrantReadWriteLock$ReadLock.lock"]),
                WaitReason::Lock,
            ),
            ("[lock]", parked(&[AWAIT, "java.util.concurrent.ArrayBlockingQueue.poll"]), WaitReason::Condition),
            (
                "[lock]",
                parked(&["java.util.concurrent.SynchronousQueue$TransferStack.transfer"]),
                WaitReason::Condition,
            ),
            (
                "[lock]",
                parked(&["java.util.concurrent.FutureTask.awaitDone", "java.util.concurrent.FutureTask.get"]),
                WaitReason::Condition,
            ),
            ("[lock]", parked(&[ACQUIRE, "java.util.concurrent.Semaphore.tryAcquire"]), WaitReason::Condition),
            ("[lock]", parked(&[]), WaitReason::LockOrCondition),
            ("", parked(&[]), WaitReason::LockOrCondition),
            ("[lock]", vec!["java.lang.Object.wait"], WaitReason::Condition),
            ("[lock]", vec!["java.lang.Object.wait", "java.lang.ProcessImpl.waitFor"], WaitReason::ChildProcess),
            ("[lock]", vec!["java.lang.Thread.sleep"], WaitReason::Sleep),
            // A monitor, and a lock of the VM below a method that also waits for sockets.
            ("[lock]", vec![], WaitReason::LockOrCondition),
            (
                "[lock]",
                vec!["java.util.concurrent.TimeUnit.convert", "sun.nio.ch.NioSocketImpl.tryLock"],
                WaitReason::LockOrCondition,
            ),
            ("[I/O]", vec!["sun.nio.ch.SocketDispatcher.read0"], WaitReason::Socket),
            ("[I/O]", vec!["sun.nio.ch.Net.poll", "sun.nio.ch.NioSocketImpl.park"], WaitReason::Socket),
            ("[I/O]", vec!["sun.nio.ch.EPoll.wait", "sun.nio.ch.EPollSelectorImpl.doSelect"], WaitReason::Io),
            ("[I/O]", vec!["java.io.FileInputStream.readBytes"], WaitReason::File),
            ("", vec!["java.lang.ProcessHandleImpl.waitForProcessExit0"], WaitReason::ChildProcess),
        ] {
            let mut stack: Vec<(&str, &str)> = Vec::new();
            stack.extend((!recorded.is_empty()).then_some((recorded, "")));
            stack.extend(waiting.iter().map(|name| (*name, "A.java")));
            stack.push(("shop.Cart.sum", "Cart.java"));
            assert_eq!(reason(&stack, FrameType::Jvm), expected, "{recorded} {waiting:?}");
        }
    }

    #[test]
    fn waits_of_node_and_of_rust_have_the_reason_of_the_function_that_waits() {
        const STD: &str = "/rustc/4d9/library/std/src/sync.rs";
        const TOKIO: &str = "/srv/.cargo/registry/src/index.crates.io-1949/tokio-1.48.0/src/sync/oneshot.rs";
        const REQWEST: &str = "/srv/.cargo/registry/src/index.crates.io-1949/reqwest-0.13.5/src/async_impl/client.rs";
        for (stack, frame_type, expected) in [
            (
                &[("[I/O]", ""), ("readSync", "node:fs"), ("readFileSync", "node:fs")][..],
                FrameType::V8js,
                WaitReason::File,
            ),
            (&[("[I/O]", ""), ("spawnSync", "node:internal/child_process")], FrameType::V8js, WaitReason::ChildProcess),
            (&[("[I/O]", ""), ("emit", "node:events")], FrameType::V8js, WaitReason::Io),
            (&[("[lock]", ""), ("wait", "/srv/a.js")], FrameType::V8js, WaitReason::LockOrCondition),
            (
                &[("[lock]", ""), ("std::sys::sync::mutex::futex::Mutex::lock_contended", STD)],
                FrameType::Rust,
                WaitReason::Lock,
            ),
            (
                &[("[lock]", ""), ("std::sync::poison::condvar::Condvar::wait", STD)],
                FrameType::Rust,
                WaitReason::Condition,
            ),
            (
                &[
                    ("[await]", ""),
                    ("tokio::sync::task::atomic_waker::AtomicWaker::register_by_ref", TOKIO),
                    ("<tokio::sync::oneshot::Receiver<T> as core::future::future::Future>::poll", TOKIO),
                    ("<reqwest::async_impl::client::Pending as core::future::future::Future>::poll", REQWEST),
                    ("shop::pay::{{closure}}", "/srv/shop/src/main.rs"),
                    ("tokio::time::sleep::Sleep", TOKIO),
                ],
                FrameType::Rust,
                WaitReason::Socket,
            ),
            (
                &[("[await]", ""), ("shop::work::{{closure}}", "/srv/shop/src/main.rs")],
                FrameType::Rust,
                WaitReason::Await,
            ),
            (&[("[I/O]", ""), ("std::net::udp::UdpSocket::recv", STD)], FrameType::Rust, WaitReason::Socket),
        ] {
            assert_eq!(reason(stack, frame_type), expected, "{stack:?}");
        }
        let native = [("[I/O]", ""), ("recv", "/lib/x86_64-linux-gnu/libc.so.6")];
        assert_eq!(reason(&native, FrameType::Native), WaitReason::Socket);
        let called = [
            ("[lock]", ""),
            ("__futex_abstimed_wait_common64", "/lib/x86_64-linux-gnu/libc.so.6"),
            ("lock_PyThread_acquire_lock", "/usr/bin/python3.11"),
            ("Lock_wait", "/venv/lib/python3.11/site-packages/locks.so"),
            ("Condition.wait", "/usr/lib/python3.11/threading.py"),
        ];
        assert_eq!(
            reason(&called, FrameType::Unspecified),
            WaitReason::Condition,
            "by the first that is no native code"
        );
    }

    #[test]
    fn own_functions_with_the_names_of_waits_tell_nothing() {
        let stack = [("wait", "/srv/shop/threading.py"), ("handle", "/srv/shop/app.py")];
        assert_eq!(reason(&stack, FrameType::Cpython), WaitReason::Unknown);
    }
}
