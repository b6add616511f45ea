//! Changes of the configuration that become due while the profiler runs: the watched file, the end of a burst. The drain
//! thread detects them at its wakeups; a thread that lives for one change applies them, since it waits for the lifecycle lock.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::host_log::{log, LogLevel};
use crate::session::current::with_lifecycle_lock;
use crate::session::Session;
use spanprof_config::RunningConfig;

/// Interval between two checks of the file in a process that uses the CPU.
const ACTIVE_INTERVAL: Duration = Duration::from_millis(700);
/// CPU time between two checks from which on a process counts as active.
const ACTIVE_CPU_NS: u64 = 1_000_000;

/// The checks of the drain thread.
#[derive(Default)]
pub(crate) struct DueChanges {
    next_check_ns: u64,
    last_check_ns: u64,
    /// CPU time of the program at the last check.
    used_cpu_ns: u64,
}

impl DueChanges {
    /// Monotonic time of the next check of the file, or of a change that is due.
    pub fn due_ns(&self, session: &Session) -> Option<u64> {
        let file_ns = session.config.watched.load().is_some().then_some(self.next_check_ns);
        let change_ns = Some(session.config.next_change_ns.load(Ordering::Acquire)).filter(|next_ns| *next_ns > 0);
        [file_ns, change_ns].into_iter().flatten().min()
    }

    /// Called at each wakeup of the drain thread.
    pub fn poll(&mut self, session: &Session, now_ns: u64) {
        let next_ns = session.config.next_change_ns.load(Ordering::Acquire);
        let is_due = next_ns > 0 && next_ns <= now_ns;
        if is_due {
            // Repeated later if the change is not applied until then.
            let later_ns = now_ns + ACTIVE_INTERVAL.as_nanos() as u64;
            let _ =
                session.config.next_change_ns.compare_exchange(next_ns, later_ns, Ordering::AcqRel, Ordering::Relaxed);
        }
        if is_due || self.has_new_file(session, now_ns) {
            apply_on_own_thread(session);
        }
    }

    fn has_new_file(&mut self, session: &Session, now_ns: u64) -> bool {
        let watched = session.config.watched.load();
        let Some(watched) = watched.as_ref() else { return false };
        if now_ns < self.last_check_ns + ACTIVE_INTERVAL.as_nanos() as u64 {
            return false;
        }
        let used_cpu_ns = spanprof_os::process_cpu_ns().saturating_sub(spanprof_os::own_cpu_ns());
        let is_active = used_cpu_ns.saturating_sub(self.used_cpu_ns) >= ACTIVE_CPU_NS;
        let interval = if is_active { ACTIVE_INTERVAL } else { session.config.active.load().upload_interval };
        self.used_cpu_ns = used_cpu_ns;
        self.last_check_ns = now_ns;
        self.next_check_ns = now_ns + interval.max(ACTIVE_INTERVAL).as_nanos() as u64;
        watched.has_changed()
    }
}

/// Starts the thread, unless one runs. Without memory for a thread, a later wakeup repeats it.
fn apply_on_own_thread(session: &Session) {
    let Some(session) = crate::session::current::current_session().filter(|current| std::ptr::eq(&**current, session))
    else {
        return;
    };
    if session.config.is_applying.swap(true, Ordering::AcqRel) {
        return;
    }
    let applied = session.clone();
    let thread = spanprof_os::start_own_thread(c"spanprof-apply", 256 * 1024, move || {
        let body = std::panic::AssertUnwindSafe(|| apply(&applied));
        if std::panic::catch_unwind(body).is_err() {
            applied.counters.panics.add(1);
        }
        applied.config.is_applying.store(false, Ordering::Release);
    });
    if thread.is_err() {
        session.config.is_applying.store(false, Ordering::Release);
    }
}

fn apply(session: &Arc<Session>) {
    with_lifecycle_lock(|| {
        if !session.is_alive() {
            return;
        }
        let mut settings = (**session.config.settings.load()).clone();
        if let Some(changed) = session.with_watched_file(&settings) {
            for warning in &changed.lasting().warnings {
                log(LogLevel::Warning, &format!("spanprof: {warning}"));
            }
            settings = changed;
        }
        if let Err(error) = session.reconfigure(settings.at(spanprof_os::monotonic_ns())) {
            log(LogLevel::Warning, &format!("spanprof: a change of the configuration failed: {}", error.message));
        }
        session.runtime.settings_changed();
    });
}

impl Session {
    /// The running configuration after a change of the file. Requires the lifecycle lock.
    fn with_watched_file(&self, running: &RunningConfig) -> Option<RunningConfig> {
        let watched = self.config.watched.load_full().filter(|watched| watched.has_changed())?;
        let mut next = watched.read();
        let applied = match &next.problem {
            None => watched.applied(&next, running).map_err(|problem| next.problem = Some(problem)).ok(),
            Some(_) => None,
        };
        match &next.problem {
            Some(problem) => {
                next.settings = watched.settings.clone();
                if watched.problem.as_ref() != Some(problem) {
                    let name = &watched.name;
                    log(
                        LogLevel::Warning,
                        &format!("spanprof: the changed configuration file `{name}` is ignored: {problem}"),
                    );
                }
            }
            None => {
                log(LogLevel::Info, &format!("spanprof: the changed configuration file `{}` was read", watched.name))
            }
        }
        self.config.watched.store(Some(Arc::new(next)));
        applied
    }
}
