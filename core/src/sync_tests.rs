//! Waits for the locks of `sync` against the waits that the program itself measures. Each run of the profiler has a process
//! of its own.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Barrier};
use std::time::{Duration, Instant};

use crate::runtime::allocator_run_testing::{in_process_of_test, HeapProfiles, HeapRun};
use crate::sync::{Condvar, Mutex, RwLock, TryLockError};
use spanprof_config::{Config, ConfigValue};
use spanprof_signal::SyntheticFrame;

fn start(lock_threshold: Duration) -> HeapRun {
    HeapRun::start_as(Config { lock: true, lock_threshold, heap: false, ..Config::default() })
}

const WORKERS: [&str; 3] = ["a", "b", "c"];

/// Times that a program measured around its calls.
#[derive(Clone, Copy, Default)]
struct Truth {
    delay_ns: f64,
    /// Sum of the squares of the waits.
    squares: f64,
    waits: f64,
}

impl Truth {
    fn add(&mut self, begun: Instant) {
        let wait_ns = begun.elapsed().as_nanos() as f64;
        (self.delay_ns, self.squares) = (self.delay_ns + wait_ns, self.squares + wait_ns * wait_ns);
        // An acquisition without a wait takes less than a microsecond.
        self.waits += if wait_ns >= 10_000.0 { 1.0 } else { 0.0 };
    }
}

/// Labeled threads contend for a lock for a second each; `acquire` returns once it has the lock, with its guard.
fn contend<G>(acquire: impl Fn(usize) -> G + Sync) -> [Truth; 3] {
    let barrier = Barrier::new(WORKERS.len());
    let mut truths = [Truth::default(); 3];
    std::thread::scope(|scope| {
        for (number, truth) in truths.iter_mut().enumerate() {
            let (acquire, barrier) = (&acquire, &barrier);
            scope.spawn(move || {
                crate::api::labels::tag_wrapper([("worker", WORKERS[number])], || {
                    barrier.wait();
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_secs(1) {
                        let before = Instant::now();
                        let guard = acquire(number);
                        truth.add(before);
                        std::thread::sleep(Duration::from_millis(2));
                        drop(guard);
                        std::thread::sleep(Duration::from_micros(300));
                    }
                });
            });
        }
    });
    truths
}

/// The delay and the number of contentions with a label, all of whose stacks begin with the function `leaf`.
fn of_worker(waits: &HeapProfiles, worker: &str, leaf: &str) -> [f64; 2] {
    ["delay", "contentions"].map(|type_name| {
        let label = ("worker".to_owned(), worker.to_owned());
        let stacks = waits.stacks(type_name).into_iter().filter(|stack| stack.labels.contains(&label));
        stacks
            .inspect(|stack| assert!(stack.functions[0].contains(leaf), "{:?}", stack.functions))
            .map(|stack| stack.value)
            .sum()
    })
}

fn assert_close(estimate: f64, truth: f64, relative: f64, name: &str) {
    assert!((estimate / truth - 1.0).abs() <= relative, "{name}: {estimate} instead of {truth} (± {relative})");
}

#[inline(never)]
fn take_stock<'a>(lock: &'a Mutex<u64>) -> crate::sync::MutexGuard<'a, u64> {
    lock.lock().unwrap()
}

#[test]
fn the_delay_of_each_labeled_thread_is_the_time_that_it_waited_for_the_mutex() {
    in_process_of_test("sync_tests::the_delay_of_each_labeled_thread_is_the_time_that_it_waited_for_the_mutex", || {
        let run = start(Duration::from_micros(10));
        let lock = Mutex::new(0u64);
        let truths = contend(|_| {
            let mut guard = take_stock(&lock);
            *guard += 1;
            guard
        });
        let [waits] = run.stop_with(["lock"]);
        for (worker, truth) in WORKERS.into_iter().zip(truths) {
            let [delay, contentions] = of_worker(&waits, worker, "take_stock");
            assert_close(delay, truth.delay_ns, 0.01, worker);
            // A thread that loses its processor just before it acquires a free lock did not wait for it.
            assert_close(contentions, truth.waits, 0.05, worker);
        }
        let all: f64 = waits.stacks("delay").iter().map(|stack| stack.value).sum();
        let labeled: f64 = WORKERS.iter().map(|worker| of_worker(&waits, worker, "take_stock")[0]).sum();
        assert_eq!(all, labeled, "every wait has its label");
    });
}

#[test]
fn of_many_waits_some_are_recorded_with_a_total_within_its_error() {
    in_process_of_test("sync_tests::of_many_waits_some_are_recorded_with_a_total_within_its_error", || {
        let run = start(Duration::from_micros(10));
        run.set("cpu_budget", ConfigValue::Float(0.01));
        let lock = Mutex::new(0u64);
        let wait_repeatedly = || {
            let mut waited_ns = 0.0;
            for _ in 0..5_000 {
                let begun = Instant::now();
                let mut guard = take_stock(&lock);
                waited_ns += begun.elapsed().as_nanos() as f64;
                *guard += 1;
                std::thread::sleep(Duration::from_micros(50));
            }
            waited_ns
        };
        let truth: f64 = std::thread::scope(|scope| {
            let waiters = [(); 3].map(|()| scope.spawn(wait_repeatedly));
            waiters.into_iter().map(|waiter| waiter.join().unwrap()).sum()
        });
        let threshold_ns = run.counter("lock.threshold") as f64;
        let recorded = run.counter("samples.submitted");
        let [waits] = run.stop_with(["lock"]);
        let delay: f64 = waits.stacks("delay").iter().map(|stack| stack.value).sum();
        assert!(threshold_ns > 10_000.0 && recorded < 5_000, "{threshold_ns} {recorded}");
        // The variance of a wait w below the threshold t is w (t − w).
        let error = (threshold_ns * truth).sqrt();
        assert!((delay - truth).abs() < 5.0 * error, "{delay} instead of {truth} ± {error}");
    });
}

#[inline(never)]
fn read_prices(lock: &RwLock<u64>) -> u64 {
    let guard = lock.read().unwrap();
    *guard
}

#[inline(never)]
fn write_prices(lock: &RwLock<u64>) -> crate::sync::RwLockWriteGuard<'_, u64> {
    lock.write().unwrap()
}

#[test]
fn readers_and_writers_that_wait_are_in_the_delay_of_their_own_functions() {
    in_process_of_test("sync_tests::readers_and_writers_that_wait_are_in_the_delay_of_their_own_functions", || {
        let run = start(Duration::from_micros(10));
        let (lock, reader_waits) = (RwLock::new(1u64), AtomicU64::new(0));
        let truths = contend(|number| {
            if number > 0 {
                return Some(write_prices(&lock));
            }
            let begun = Instant::now();
            assert_eq!(read_prices(&lock), 1);
            reader_waits.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
            None
        });
        let [waits] = run.stop_with(["lock"]);
        assert_close(of_worker(&waits, "a", "read_prices")[0], truths[0].delay_ns, 0.01, "reader");
        assert_close(of_worker(&waits, "b", "write_prices")[0], truths[1].delay_ns, 0.01, "writer");
        assert_close(of_worker(&waits, "c", "write_prices")[0], truths[2].delay_ns, 0.01, "writer");
    });
}

#[test]
fn totals_of_waits_below_the_threshold_are_unbiased() {
    in_process_of_test("sync_tests::totals_of_waits_below_the_threshold_are_unbiased", || {
        const THRESHOLD: Duration = Duration::from_secs(1);
        let run = start(THRESHOLD);
        // About one wait of each worker is recorded, with a hundred times its weight.
        let lock = Mutex::new(0u64);
        let mut truth = Truth::default();
        for _ in 0..8 {
            for of_worker in contend(|_| take_stock(&lock)) {
                truth.delay_ns += of_worker.delay_ns;
                truth.squares += of_worker.squares;
            }
        }
        let [waits] = run.stop_with(["lock"]);
        let delay: f64 = waits.stacks("delay").iter().map(|stack| stack.value).sum();
        // A wait d contributes the threshold T with probability d/T: variance T·d − d².
        let deviation = (THRESHOLD.as_nanos() as f64 * truth.delay_ns - truth.squares).sqrt();
        assert!((delay - truth.delay_ns).abs() < 5.0 * deviation, "{delay} of {} ± {deviation}", truth.delay_ns);
    });
}

#[test]
fn a_wait_is_submitted_after_the_release_and_only_while_waits_are_reported() {
    in_process_of_test("sync_tests::a_wait_is_submitted_after_the_release_and_only_while_waits_are_reported", || {
        let run = start(Duration::ZERO);
        let lock = Mutex::new(0u64);
        let submitted = || run.counter("samples.submitted");
        // Returns the samples that were submitted until the release, and at it.
        let wait_once = || {
            let before = submitted();
            let held = lock.lock().unwrap();
            std::thread::scope(|scope| {
                let (sender, receiver) = mpsc::channel();
                let (lock, run) = (&lock, &run);
                let waiter = scope.spawn(move || {
                    sender.send(spanprof_os::thread_id()).unwrap();
                    let guard = take_stock(lock);
                    run.wait_until_drained();
                    let while_held = submitted();
                    drop(guard);
                    run.wait_until_drained();
                    [while_held - before, submitted() - while_held]
                });
                let (waiter_id, deadline) = (receiver.recv().unwrap(), Instant::now() + Duration::from_secs(60));
                let waits = Some(spanprof_os::ThreadState::Waiting(Some(SyntheticFrame::Lock)));
                while spanprof_os::thread_state(waiter_id) != waits && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(1));
                }
                drop(held);
                waiter.join().unwrap()
            })
        };
        assert_eq!(wait_once(), [0, 1]);
        run.set("lock", ConfigValue::Bool(false));
        assert_eq!(wait_once(), [0, 0]);
        run.set("lock", ConfigValue::Bool(true));
        assert_eq!(wait_once(), [0, 1]);
        let profiler = run.profiler.clone();
        let [waits] = run.stop_with(["lock"]);
        assert_eq!(waits.stacks("contentions").iter().map(|stack| stack.value).sum::<f64>(), 2.0);
        assert_eq!(*take_stock(&lock), 0);
        assert!(!profiler.is_running());
    });
}

#[test]
fn the_idle_wait_of_a_condition_variable_is_no_contention() {
    in_process_of_test("sync_tests::the_idle_wait_of_a_condition_variable_is_no_contention", || {
        let run = start(Duration::ZERO);
        let (state, notified) = (Mutex::new(0), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = notified.wait_while(state.lock().unwrap(), |number| *number < 5).unwrap();
                assert_eq!(*guard, 5);
            });
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(100));
                *state.lock().unwrap() += 1;
                notified.notify_all();
            }
        });
        let (guard, result) = notified.wait_timeout(state.lock().unwrap(), Duration::from_millis(50)).unwrap();
        // It may wake up without a notification.
        _ = result.timed_out();
        let still_five = |number: &mut i32| *number == 5;
        let (guard, result) = notified.wait_timeout_while(guard, Duration::from_millis(50), still_five).unwrap();
        assert!(result.timed_out() && *guard == 5);
        drop(guard);
        let [waits] = run.stop_with(["lock"]);
        let delay: f64 = waits.stacks("delay").iter().map(|stack| stack.value).sum();
        // Two threads compete for the mutex for a moment at each notification; the idle time is 600 ms.
        assert!(delay < 250e6, "{delay}");
    });
}

#[test]
fn the_locks_behave_as_those_of_the_standard_library() {
    let lock = Arc::new(Mutex::new(vec![1]));
    lock.lock().unwrap().push(2);
    {
        let guard = lock.try_lock().unwrap();
        assert!(matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
        assert_eq!(
            (format!("{guard:?}"), format!("{lock:?}")),
            ("[1, 2]".to_owned(), {
                let plain = std::sync::Mutex::new(vec![1, 2]);
                let _held = plain.lock();
                format!("{plain:?}")
            })
        );
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.lock().unwrap();
        panic!("on purpose: poisons the lock");
    }));
    assert!(panicked.is_err() && lock.is_poisoned());
    assert_eq!(lock.lock().unwrap_err().into_inner().len(), 2);
    assert!(matches!(lock.try_lock(), Err(TryLockError::Poisoned(_))));
    lock.clear_poison();
    let mut lock = Arc::into_inner(lock).unwrap();
    lock.get_mut().unwrap().push(3);
    assert_eq!(lock.into_inner().unwrap(), [1, 2, 3]);

    let rw_lock: RwLock<&str> = RwLock::from("value");
    {
        let (one, other) = (rw_lock.read().unwrap(), rw_lock.try_read().unwrap());
        assert_eq!((one.len(), format!("{other}")), (5, "value".to_owned()));
        assert!(matches!(rw_lock.try_write(), Err(TryLockError::WouldBlock)));
    }
    *rw_lock.try_write().unwrap() = "other";
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = rw_lock.write().unwrap();
        panic!("on purpose: poisons the lock");
    }));
    assert!(panicked.is_err() && rw_lock.is_poisoned());
    assert_eq!(**rw_lock.read().unwrap_err().into_inner(), *"other");
    rw_lock.clear_poison();
    assert_eq!(rw_lock.into_inner().unwrap(), "other");

    // Unsized values, defaults, static initial values.
    let unsized_value: Arc<Mutex<[u8]>> = Arc::new(Mutex::new([1, 2, 3]));
    assert_eq!(unsized_value.lock().unwrap().len(), 3);
    static DONE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
    let waiter = std::thread::spawn(|| *DONE.1.wait_while(DONE.0.lock().unwrap(), |done| !*done).unwrap());
    *DONE.0.lock().unwrap() = true;
    DONE.1.notify_one();
    assert!(waiter.join().unwrap());
    assert!(!*Mutex::<bool>::default().lock().unwrap());
}
