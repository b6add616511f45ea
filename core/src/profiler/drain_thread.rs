//! The drain thread: sleeps until there is something to do, drains, closes windows, hands them over. It wakes at the
//! window's end, when the ring fills, and in an idle process once per upload interval to check the signal handlers.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::delivery_log::DeliveryLog;
use super::first_line::FirstLine;
use super::session::{Change, Kinds, Session};
use crate::config::Config;
use crate::engine::{Engine, WindowEnd};
use crate::host_log::{log, take_panic, LogLevel};
use crate::output::OutputFile;
use crate::own_thread;
use crate::sys::{self, Clocks, WakeReason};
use spanprof_signal::signal_claim::{self, ClaimStatus};
use spanprof_signal::SampleKind;

/// How often the outcome of the first delivery is looked at, for the one line in the log.
const FIRST_LINE_POLL: Duration = Duration::from_millis(200);

/// How long a process that SIGTERM ends waits for its receivers.
const BEFORE_TERMINATION: Duration = Duration::from_millis(150);

/// Starts the thread.
pub(super) fn spawn(session: Arc<Session>) -> std::io::Result<()> {
    // Read here: by the time the thread runs, the configuration may have changed, at a position it will be told.
    let config = session.config.load_full();
    own_thread::start(c"spanprof-drain", 512 * 1024, move || main(session, config)).map(drop)
}

fn main(session: Arc<Session>, config: Arc<Config>) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut drain = DrainThread::new(&session, &config);
        if session.marks_crashes {
            sys::sweep_crash_markers();
        }
        while drain.turn() {}
    }));
    if outcome.is_err() {
        session.counters.panics.add(1);
        session.stop_clocks();
        log(LogLevel::Warning, "spanprof: an internal error ended profiling; the program runs on");
        log_panic();
    }
    session.control.tell(|asked| asked.ended = true);
}

/// The binding keeps panics rather than printing them; also those of its calls.
fn log_panic() {
    if let Some(text) = take_panic() {
        log(LogLevel::Warning, &format!("spanprof: internal error: {text}"));
    }
}

struct DrainThread<'a> {
    session: &'a Session,
    engine: Engine,
    first_line: FirstLine,
    delivery_log: DeliveryLog,
    output: Option<OutputFile>,
    /// Address of the clocks whose account the engine follows.
    account_of: usize,
    /// When the signal handlers are checked next, by the monotonic clock.
    check_handlers_at_ns: u64,
    /// Samples at ring positions from here on may belong to a changed configuration.
    up_to: u64,
}

impl<'a> DrainThread<'a> {
    fn new(session: &'a Session, config: &Config) -> Self {
        let engine = Engine::new(
            config,
            session.runtime.clone(),
            session.resource.clone(),
            session.counters.clone(),
            sys::monotonic_ns(),
        );
        let output = session.output.lock().unwrap_or_else(PoisonError::into_inner).take();
        Self {
            session,
            engine,
            first_line: FirstLine::default(),
            delivery_log: DeliveryLog::default(),
            output,
            account_of: 0,
            check_handlers_at_ns: sys::monotonic_ns() + config.upload_interval.as_nanos() as u64,
            up_to: 0,
        }
    }

    /// One sleep and what follows it; false at the end.
    fn turn(&mut self) -> bool {
        if let Some(clocks) = &*self.session.clocks.load() {
            clocks.wake_current_thread_for_scans();
        }
        let reason = self.session.inbox.wait(self.sleep_ns());
        if self.is_window_ending() {
            self.session.release_wall();
        }
        self.check_handlers();
        log_panic();
        if sys::is_terminating() {
            self.deliver_before_termination();
        }
        let (closes, close_kinds, changes, stop) = {
            let mut asked = self.session.control.lock();
            // Under the lock: a change that is not seen now has no position below this one.
            self.up_to = self.session.inbox.ring().head();
            let close_kinds = std::mem::take(&mut asked.close_kinds);
            (asked.closes, close_kinds, std::mem::take(&mut asked.changes), asked.stop)
        };
        let clocks = self.session.clocks.load_full();
        self.follow_account_of(&clocks);
        if reason == WakeReason::ScanDue {
            if let Some(clocks) = clocks.as_ref().filter(|clocks| clocks.scan_if_due()) {
                // An open window asks at its end; the account is a system call for each thread.
                if self.engine.due_ns().is_none() {
                    self.engine.notice_unseen(&clocks.account(), sys::monotonic_ns());
                }
            }
        }
        for change in &changes {
            self.reconfigure(change);
        }
        if stop {
            self.close_and_send(true);
            if let Some(output) = &mut self.output {
                // Written once: nobody else sets it.
                let _ = self.session.written.set(output.write());
            }
            return false;
        }
        self.drain_up_to(self.up_to);
        let due = self.engine.due_ns().is_some_and(|due_ns| due_ns <= sys::monotonic_ns());
        let asked_to_close = closes > self.session.control.lock().closes_done;
        if due || close_kinds == Kinds::All || self.engine.is_full() {
            self.close_and_send(false);
        } else if let Kinds::Some(kinds) = close_kinds {
            for kind in kinds {
                // Of all kinds, CPU time alone has an account.
                let clocks = clocks.as_ref().filter(|_| kind == SampleKind::Cpu);
                self.close(clocks.map(|clocks| clocks.account()), Some(kind));
            }
        }
        if asked_to_close {
            self.session.control.tell(|asked| asked.closes_done = closes);
        }
        if let Some(reported) = self.first_line.poll(self.session) {
            self.delivery_log.begin(now(), &reported);
        }
        true
    }

    /// Once per upload interval, and never only when a sample arrives: a handler that replaced ours keeps them away.
    fn check_handlers(&mut self) {
        let now_ns = sys::monotonic_ns();
        if now_ns < self.check_handlers_at_ns {
            return;
        }
        let interval_ns = self.session.config.load().upload_interval.as_nanos() as u64;
        self.check_handlers_at_ns = now_ns + interval_ns;
        let clocks = self.session.clocks.load_full();
        match clocks.map_or_else(signal_claim::check, |clocks| clocks.check_handlers()) {
            ClaimStatus::InPlace => {}
            ClaimStatus::Moved(signal) => log(
                LogLevel::Warning,
                &format!("spanprof: another handler was installed for SIGURG; it stays, and samples use signal {signal} from now on"),
            ),
            ClaimStatus::Reinstalled => log(
                LogLevel::Warning,
                "spanprof: another handler replaced the one that takes samples; that is installed again and forwards to it",
            ),
            ClaimStatus::Lost => log(
                LogLevel::Warning,
                "spanprof: another handler replaced the one that takes samples; there are none until it is removed",
            ),
        }
    }

    /// The process ends by SIGTERM: delivers what there is, then lets it end.
    fn deliver_before_termination(&mut self) {
        self.session.release_wall();
        self.up_to = self.session.inbox.ring().head();
        // Before the window is closed: a receiver may refuse it at once.
        let delivery = self.session.delivery.as_ref().map(|delivery| (delivery, delivery.moment()));
        self.close_and_send(false);
        if let Some((delivery, before)) = delivery {
            delivery.flush(&before, BEFORE_TERMINATION);
        }
        if self.session.marks_crashes {
            sys::end_crash_marker();
        }
        sys::unregister_child();
        sys::raise_termination();
    }

    fn is_window_ending(&self) -> bool {
        let is_due = self.engine.due_ns().is_some_and(|due_ns| due_ns <= sys::monotonic_ns());
        is_due || {
            let asked = self.session.control.lock();
            asked.closes > asked.closes_done
        }
    }

    /// Clocks that were switched off and on again began a new account.
    fn follow_account_of(&mut self, clocks: &Option<Arc<Clocks>>) {
        let number = clocks.as_ref().map_or(0, |clocks| Arc::as_ptr(clocks) as usize);
        if number != self.account_of {
            self.account_of = number;
            self.engine.reset_account();
        }
    }

    fn sleep_ns(&self) -> Option<u64> {
        let due_ns = self.engine.due_ns().unwrap_or(u64::MAX).min(self.check_handlers_at_ns);
        let left_ns = due_ns.saturating_sub(sys::monotonic_ns()).max(1);
        match self.first_line.is_waiting() {
            true => Some(left_ns.min(FIRST_LINE_POLL.as_nanos() as u64)),
            false => Some(left_ns),
        }
    }

    /// Takes what waits below a position; windows that fill up on the way are sent.
    fn drain_up_to(&mut self, up_to: u64) {
        while self.engine.drain(self.session.inbox.ring(), up_to) {
            self.session.counters.windows_closed_early.add(1);
            self.close(None, None);
        }
    }

    /// Brings a change into force between the samples before it and those after it.
    fn reconfigure(&mut self, change: &Change) {
        self.drain_up_to(change.position);
        if self.engine.needs_new_window(&change.config) {
            let account = self.session.clocks.load().as_ref().map(|clocks| clocks.account());
            self.close(account, None);
        }
        self.engine.apply(&change.config);
        self.session.update_wall();
    }

    /// Ends the window and hands it over; with `last`, ends the clocks between the account and the last samples.
    fn close_and_send(&mut self, last: bool) {
        let session = self.session;
        // The account before the rest of the ring: what a sample brings after it is never counted twice.
        let clocks = session.clocks.load_full();
        self.follow_account_of(&clocks);
        let account = clocks.as_ref().map(|clocks| clocks.account());
        if last {
            session.stop_clocks();
        }
        let up_to = if last { u64::MAX } else { self.up_to };
        while self.engine.drain(session.inbox.ring(), up_to) && last {
            self.close(None, None);
        }
        self.close(account, None);
    }

    fn close(&mut self, account: Option<sys::CpuAccount>, only: Option<SampleKind>) {
        let now_ns = sys::monotonic_ns();
        let mut living = Vec::new();
        let listed = sys::thread_ids(&mut living);
        let closed = self.engine.close(WindowEnd {
            now_monotonic_ns: now_ns,
            unix_offset_ns: unix_offset_ns(),
            account,
            lives: &mut |thread_id| !listed || living.contains(&thread_id),
            only,
        });
        // Scans do this too, but without CPU clocks there are none.
        if self.session.config.load().signals && !sys::fault_guard_owned() {
            sys::install_fault_guard();
        }
        if self.session.marks_crashes {
            sys::keep_crash_marker(sys::unix_ns());
        }
        let Some(closed) = closed else { return };
        self.first_line.window_closed(&closed, self.session);
        if let Some(output) = &mut self.output {
            output.add(&closed.data);
        }
        if let Some(delivery) = &self.session.delivery {
            // Before this window is handed over: those before it had their time.
            for (level, line) in self.delivery_log.observe(now(), &delivery.stats()) {
                log(level, &line);
            }
            delivery.send(closed, self.session.config.load().max_profile_size as usize);
        }
    }
}

/// Monotonic time.
fn now() -> Duration {
    Duration::from_nanos(sys::monotonic_ns())
}

/// Unix time minus monotonic time: of a few tries the one in which the clocks were read closest to each other, since the
/// thread may lose its processor in between.
fn unix_offset_ns() -> i128 {
    let tries = (0..3).map(|_| {
        let before_ns = sys::monotonic_ns();
        let unix_ns = sys::unix_ns();
        let apart_ns = sys::monotonic_ns() - before_ns;
        (apart_ns, i128::from(unix_ns) - i128::from(before_ns + apart_ns / 2))
    });
    tries.min().map_or(0, |(_, offset_ns)| offset_ns)
}
