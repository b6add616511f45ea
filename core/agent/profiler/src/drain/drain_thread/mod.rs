//! The drain thread: drains the ring, closes windows and queues them for delivery. It wakes at the end of a window,
//! when the ring fills, on requests, and in an idle process once per upload interval to check the signal handlers.

mod collections;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::heap_peak::{self, HeapPeakRecorder};
use super::tick_check::TickCheck;
use crate::deliver::output::OutputFile;
use crate::drain::engine_settings::{engine_settings, system_access};
use crate::drain::overhead::OverheadMonitor;
use crate::host_log::{log, take_panic, LogLevel};
use crate::report::delivery_log::DeliveryLog;
use crate::report::first_line::FirstLine;
use crate::report::health;
use crate::report::metrics_report::MetricsReport;
use crate::session::drain_control::{CollectionStep, ConfigChange};
use crate::session::due_changes::DueChanges;
use crate::session::{heap_profile, Session};
use spanprof_aggregate::{Engine, WindowEnd};
use spanprof_config::Config;
use spanprof_os::{Clocks, WakeReason};
use spanprof_profile::redact::ProfileRedactor;
use spanprof_signal::signal_claim::{self, ClaimStatus};

/// Poll interval for the result of the first delivery, which the log line of the first window reports.
const FIRST_LINE_POLL: Duration = Duration::from_millis(200);

/// Timeout of the delivery that delays SIGTERM.
const TERMINATION_FLUSH_TIMEOUT: Duration = Duration::from_millis(150);

/// Starts the thread.
pub(crate) fn spawn(session: Arc<Session>) -> std::io::Result<()> {
    // Read on this thread: later changes reach the drain thread as `ConfigChange`.
    let config = session.config.active.load_full();
    spanprof_os::start_own_thread(c"spanprof-drain", 512 * 1024, move || main(session, config)).map(drop)
}

fn main(session: Arc<Session>, config: Arc<Config>) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut drain = DrainThread::new(&session, &config);
        if session.process.marks_crashes {
            spanprof_os::sweep_crash_markers();
        }
        if let Some(directory) = heap_peak::directory(&config) {
            heap_peak::recover(&directory, &session.outputs.resource.load());
        }
        while drain.run_once() {
            if spanprof_os::is_reserve_low() {
                return true;
            }
        }
        false
    }));
    if outcome.as_ref().is_ok_and(|is_out_of_memory| *is_out_of_memory) {
        session.stop_clocks();
        log(
            LogLevel::Warning,
            "spanprof: no memory is left for the profiler, which ended profiling; the program continues",
        );
    }
    if outcome.is_err() {
        session.counters.panics.add(1);
        session.stop_clocks();
        log(LogLevel::Warning, "spanprof: an internal error ended profiling; the program continues");
        log_panic();
    }
    session.control.complete(|requests| requests.ended = true);
}

/// Logs a panic that `keep_panics` stored, on this thread or in a call of a binding.
fn log_panic() {
    if let Some(text) = take_panic() {
        log(LogLevel::Warning, &format!("spanprof: internal error: {text}"));
    }
}

/// What ends at a wakeup: decided once, before held-back samples are submitted. What becomes due later ends at the next wakeup.
struct Ending {
    /// Windows that are due by this monotonic time.
    due_by_ns: u64,
    /// Number of the last request to close a window, if that is not done.
    close: Option<u64>,
    captures: Vec<u32>,
}

/// Requests of other threads, taken at one wakeup.
struct TakenRequests {
    changes: Vec<ConfigChange>,
    stop: bool,
}

struct DrainThread<'a> {
    session: &'a Session,
    engine: Engine,
    due_changes: DueChanges,
    first_line: FirstLine,
    tick_check: TickCheck,
    delivery_log: DeliveryLog,
    output: Option<OutputFile>,
    heap_peak: Option<HeapPeakRecorder>,
    overhead: OverheadMonitor,
    metrics: MetricsReport,
    /// Run number of the clocks of the current CPU account; 0: none.
    account_clocks: u64,
    /// Monotonic time of the next check of the signal handlers.
    check_handlers_at_ns: u64,
    /// Ring position up to which samples belong to the current configuration.
    up_to: u64,
}

impl<'a> DrainThread<'a> {
    fn new(session: &'a Session, config: &Config) -> Self {
        let engine = Engine::new(
            engine_settings(config, session.sampling.cpu_quota),
            system_access(),
            session.runtime.clone(),
            session.outputs.resource.load_full(),
            ProfileRedactor::new(session.outputs.redaction.clone()),
            session.counters.clone(),
            spanprof_os::monotonic_ns(),
        );
        build_tables(session);
        let output = session.outputs.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        let peak_file = session.outputs.peak_file.lock().unwrap_or_else(PoisonError::into_inner).take();
        Self {
            session,
            engine,
            due_changes: DueChanges::default(),
            first_line: FirstLine::default(),
            tick_check: TickCheck::begin(session),
            delivery_log: DeliveryLog::default(),
            output,
            heap_peak: HeapPeakRecorder::new(config, peak_file),
            overhead: OverheadMonitor::new(session),
            metrics: MetricsReport::new(session, config),
            account_clocks: 0,
            check_handlers_at_ns: spanprof_os::monotonic_ns() + config.upload_interval.as_nanos() as u64,
            up_to: 0,
        }
    }

    /// Sleeps until the next wakeup and handles it; false after the last window.
    fn run_once(&mut self) -> bool {
        if let Some(clocks) = &*self.session.sampling.clocks.load() {
            clocks.wake_current_thread_for_scans();
        }
        if self.session.config.active.load().threads {
            // Also in an idle process, which has no samples.
            self.engine.open(spanprof_os::monotonic_ns());
        }
        let reason = self.session.inbox.wait(self.sleep_ns());
        // Before names are resolved, which may take long: walks wait for the tables.
        build_tables(self.session);
        if self.session.is_superseded() {
            return self.leave_to_later_run();
        }
        let ending = self.ending();
        let (is_peak_due, steps) = self.submit_outstanding(&ending);
        self.check_handlers();
        self.due_changes.poll(self.session, spanprof_os::monotonic_ns());
        log_panic();
        if spanprof_os::is_terminating() {
            self.deliver_before_termination();
        }
        let requested = self.take_requests();
        if self.session.is_superseded() {
            // It began before the position was read.
            return self.leave_to_later_run();
        }
        for change in &requested.changes {
            self.reconfigure(change);
        }
        let clocks = self.session.sampling.clocks.load_full();
        self.follow_account_of(&clocks);
        if reason == WakeReason::ScanDue {
            self.scan_threads(clocks.as_deref());
        }
        self.drain_up_to(self.up_to);
        if requested.stop {
            self.finish();
            return false;
        }
        self.follow_collections(steps);
        self.end_captures(&ending.captures);
        if let Some(recorder) = self.heap_peak.as_mut().filter(|_| is_peak_due) {
            recorder.check(&mut self.engine, self.session);
        }
        self.close_if_due(&ending);
        self.overhead.check(self.session, self.engine.due_ns());
        self.metrics.poll(self.session);
        if let Some(reported) = self.first_line.poll(self.session) {
            self.delivery_log.begin(now(), &reported);
        }
        true
    }

    /// Makes the wall sampler and the heap profile submit the samples that they hold back, if what ends at this wakeup needs them.
    /// Returns whether a write of the heap at its peak is due, and the steps of collections.
    fn submit_outstanding(&mut self, ending: &Ending) -> (bool, Vec<(u32, CollectionStep)>) {
        let ends_window = self.ends_window(ending);
        let ends_profile = ends_window || !ending.captures.is_empty();
        if ends_profile {
            // Captures have no live threads.
            self.session.release_wall(ends_window);
        }
        let is_peak_due = self.heap_peak.as_ref().is_some_and(|recorder| recorder.is_due(self.session));
        // Read before the position of the ring: the samples before each step are drained first.
        let steps = self.session.control.lock().requested_steps();
        // Only for collections of the heap: in some runtimes the threads of the program read their allocations.
        if ends_profile || is_peak_due || steps.iter().any(|(_, step)| step.has_allocations()) {
            heap_profile::submit_outstanding(self.session);
        }
        (is_peak_due, steps)
    }

    /// Takes the requests of other threads, begins captures, and reads the ring's position.
    fn take_requests(&mut self) -> TakenRequests {
        let mut requests = self.session.control.lock();
        // Read under the lock: later changes have no position below this one.
        self.up_to = self.session.inbox.ring().head();
        for number in requests.captures_to_begin() {
            self.engine.begin_capture(number, spanprof_os::monotonic_ns());
        }
        TakenRequests { changes: std::mem::take(&mut requests.changes), stop: requests.stop }
    }

    /// Scans for new threads if that is due.
    fn scan_threads(&mut self, clocks: Option<&Clocks>) {
        if let Some(clocks) = clocks.filter(|clocks| clocks.scan_if_due()) {
            // An open window reads the account at its end. The reading costs one system call per thread.
            if self.engine.due_ns().is_none() {
                self.engine.open_for_unattributed(clocks.account().unattributed_ns(), spanprof_os::monotonic_ns());
            }
        }
    }

    /// Closes the last window, after its samples were drained.
    fn finish(&mut self) {
        let captures = self.session.control.lock().captures_to_end();
        self.end_captures(&captures);
        // The program may read collections after the end.
        let steps = self.session.control.lock().steps_at_end();
        self.follow_collections(steps);
        self.close_and_send(true);
        self.metrics.send_last(self.session);
        self.write_output();
    }

    /// Closes the window if that ends at this wakeup, and completes the requests for it.
    fn close_if_due(&mut self, ending: &Ending) {
        self.engine.set_resource(self.session.outputs.resource.load_full());
        if self.ends_window(ending) || self.engine.is_full() {
            self.close_and_send(false);
        }
        if let Some(number) = ending.close {
            self.session.control.complete(|requests| requests.closes_done = number);
        }
    }

    /// Ends and leaves the samples and wakeups in the ring to the later run. Returns false.
    fn leave_to_later_run(&mut self) -> bool {
        self.session.inbox.wake();
        self.engine.release_all_held();
        self.close(None, false);
        self.write_output();
        false
    }

    /// Writes the file of the whole run, at its end.
    fn write_output(&mut self) {
        if let Some(output) = &mut self.output {
            // Only this line sets it, once.
            let _ = self.session.outputs.file_result.set(output.write(health::losses(self.session)));
        }
    }

    /// Checks the signal handlers once per upload interval, independently of samples: where another handler replaced
    /// the profiler's, no sample arrives.
    fn check_handlers(&mut self) {
        let now_ns = spanprof_os::monotonic_ns();
        if now_ns < self.check_handlers_at_ns {
            return;
        }
        let interval_ns = self.session.config.active.load().upload_interval.as_nanos() as u64;
        self.check_handlers_at_ns = now_ns + interval_ns;
        let clocks = self.session.sampling.clocks.load_full();
        match clocks.map_or_else(signal_claim::check, |clocks| clocks.check_handlers()) {
            ClaimStatus::Installed => {}
            ClaimStatus::Moved(signal) => log(
                LogLevel::Warning,
                &format!("spanprof: another handler was installed for SIGURG; it stays, and samples use signal {signal} from now on"),
            ),
            ClaimStatus::Reinstalled => log(
                LogLevel::Warning,
                "spanprof: another handler replaced the profiler's signal handler; the profiler's handler was installed again and forwards to it",
            ),
            ClaimStatus::Lost => log(
                LogLevel::Warning,
                "spanprof: another handler replaced the profiler's signal handler; there are no samples until it is removed",
            ),
        }
    }

    /// Delivers the open window after SIGTERM, then terminates the process.
    fn deliver_before_termination(&mut self) {
        self.session.release_wall(true);
        heap_profile::submit_outstanding(self.session);
        self.up_to = self.session.inbox.ring().head();
        self.drain_up_to(self.up_to);
        self.engine.release_all_held();
        // Taken before the window closes: a receiver may refuse it immediately.
        let delivery = self.session.outputs.delivery.as_ref().map(|delivery| (delivery, delivery.loss_baseline()));
        self.close_and_send(false);
        self.metrics.send_last(self.session);
        if let Some((delivery, before)) = delivery {
            delivery.flush(&before, TERMINATION_FLUSH_TIMEOUT);
        }
        if self.session.process.marks_crashes {
            spanprof_os::end_crash_marker();
        }
        self.heap_peak = None;
        spanprof_os::unregister_child();
        spanprof_os::raise_termination();
    }

    fn ending(&self) -> Ending {
        let requests = self.session.control.lock();
        Ending {
            due_by_ns: spanprof_os::monotonic_ns(),
            close: (requests.closes > requests.closes_done).then_some(requests.closes),
            captures: requests.captures_to_end(),
        }
    }

    /// Not due any more after a full window or a change closed it.
    fn ends_window(&self, ending: &Ending) -> bool {
        ending.close.is_some() || self.engine.due_ns().is_some_and(|due_ns| due_ns <= ending.due_by_ns)
    }

    /// Resets the account when the clocks were restarted.
    fn follow_account_of(&mut self, clocks: &Option<Arc<Clocks>>) {
        self.follow_account(clocks.as_ref().map_or(0, |clocks| clocks.run_number()));
    }

    fn follow_account(&mut self, run_number: u64) {
        if run_number != self.account_clocks {
            self.account_clocks = run_number;
            self.engine.reset_account();
        }
    }

    fn sleep_ns(&self) -> Option<u64> {
        let peak_ns = self.heap_peak.as_ref().and_then(|recorder| recorder.due_ns(self.session));
        let change_ns = self.due_changes.due_ns(self.session);
        // An idle process, which has no window, has no wakeup for the governor.
        let overhead_ns = self.engine.due_ns().map(|window_due_ns| self.overhead.due_ns(window_due_ns));
        let due_ns = [self.engine.due_ns(), peak_ns, change_ns, overhead_ns, self.metrics.due_ns()];
        let due_ns = due_ns.into_iter().flatten().fold(self.check_handlers_at_ns, u64::min);
        let left_ns = due_ns.saturating_sub(spanprof_os::monotonic_ns()).max(1);
        if self.first_line.is_waiting() {
            Some(left_ns.min(FIRST_LINE_POLL.as_nanos() as u64))
        } else {
            Some(left_ns)
        }
    }

    /// Drains the ring below a position; closes windows that become full.
    fn drain_up_to(&mut self, up_to: u64) {
        while self.engine.drain(self.session.inbox.ring(), up_to, spanprof_os::monotonic_ns()) {
            self.session.counters.windows_closed_early.add(1);
            self.close(None, false);
        }
    }

    /// Applies a change between the samples before and after its position.
    fn reconfigure(&mut self, change: &ConfigChange) {
        self.drain_up_to(change.position);
        let settings = engine_settings(&change.config, self.session.sampling.cpu_quota);
        if let Some((run_number, account)) = change.ended_clocks {
            self.follow_account(run_number);
            self.engine.add_unattributed_at_end(account.unattributed_ns(), spanprof_os::monotonic_ns());
            self.close(None, true);
        } else if change.ends_window || self.engine.needs_new_window(&settings) {
            let clocks = self.session.sampling.clocks.load_full();
            self.follow_account_of(&clocks);
            self.close(clocks.map(|clocks| clocks.account()), true);
        }
        if change.ends_window {
            self.engine.begin_at(spanprof_os::monotonic_ns());
        }
        self.engine.apply(settings, spanprof_os::monotonic_ns());
        self.engine.set_comment(change.comment.clone());
        self.session.update_wall();
    }

    /// Closes the window and queues it for delivery. With `last`, stops the clocks between reading the account and the
    /// last drain.
    fn close_and_send(&mut self, last: bool) {
        let session = self.session;
        // The account is read before the last drain, so that the time of later samples is not counted twice.
        let clocks = session.sampling.clocks.load_full();
        self.follow_account_of(&clocks);
        let account = clocks.as_ref().map(|clocks| clocks.account());
        if last {
            session.stop_clocks();
        }
        let head = session.inbox.ring().head();
        // A later run that began meanwhile has samples before `head`.
        let up_to = if last && !session.is_superseded() { head } else { self.up_to };
        while self.engine.drain(session.inbox.ring(), up_to, spanprof_os::monotonic_ns()) && last {
            self.close(None, false);
        }
        if last {
            self.engine.release_all_held();
        }
        self.close(account, true);
    }

    /// Closes the window. `in_use`: with the objects in use, which early windows do not repeat.
    fn close(&mut self, account: Option<spanprof_os::CpuAccount>, in_use: bool) {
        let now_ns = spanprof_os::monotonic_ns();
        let mut live_threads = Vec::new();
        let listed = spanprof_os::thread_ids(&mut live_threads);
        let closed = self.engine.close(WindowEnd {
            now_monotonic_ns: now_ns,
            unix_offset_ns: unix_offset_ns(),
            unattributed_ns: account.map(|account| account.unattributed_ns()),
            is_alive: &mut |thread_id| !listed || live_threads.contains(&thread_id),
            in_use,
            sums_since_start: crate::session::pull_handlers::has_handler(),
        });
        // Scans do this too, but run only with CPU clocks.
        if self.session.config.active.load().signals {
            spanprof_os::restore_fault_guard();
        }
        if self.session.process.marks_crashes {
            spanprof_os::keep_crash_marker(spanprof_os::unix_ns());
        }
        let Some(closed) = closed else { return };
        self.first_line.window_closed(&closed, self.session);
        self.tick_check.window_closed(self.session);
        if let Some(output) = &mut self.output {
            output.add(&closed.data);
        }
        if let Some(delivery) = &self.session.outputs.delivery {
            // Before this window is queued, so that the counters cover earlier windows only.
            for (level, line) in self.delivery_log.observe(now(), &delivery.stats()) {
                log(level, &line);
            }
            delivery.send(closed, self.session.config.active.load().request_bytes() as usize);
        }
    }
}

/// Builds the tables that walks asked for, unless the end waits for it: that of Node.js takes seconds on a busy machine.
fn build_tables(session: &Session) {
    let is_ending = || session.stopping.load(Ordering::Acquire) || spanprof_os::is_terminating();
    spanprof_unwind::refresh(&[session.runtime.code_address()], &is_ending);
}

/// Monotonic time.
fn now() -> Duration {
    Duration::from_nanos(spanprof_os::monotonic_ns())
}

/// Unix time minus monotonic time. Uses the one of three attempts with the shortest time between the reads, since the
/// thread may be preempted in between.
fn unix_offset_ns() -> i128 {
    let attempts = (0..3).map(|_| {
        let before_ns = spanprof_os::monotonic_ns();
        let unix_ns = spanprof_os::unix_ns();
        let elapsed_ns = spanprof_os::monotonic_ns() - before_ns;
        (elapsed_ns, i128::from(unix_ns) - i128::from(before_ns + elapsed_ns / 2))
    });
    attempts.min().map_or(0, |(_, offset_ns)| offset_ns)
}
