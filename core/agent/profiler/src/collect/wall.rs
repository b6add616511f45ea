//! Profiles that the program collects itself, beside the open window: wall-clock samples of one thread, and the objects in use.
//! The continuous profile does not change. Not here: pulls over HTTP (`pull`), captures of a scope (`capture`).
//!
//! Profiles of time are of the wall clock, as the npm package `pprof` documents: CPU samples would miss `execSync`,
//! `Atomics.wait` and slow files. `update({ wall: true })` instead of a collection would give the continuous profile
//! another type.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

use super::capture::CapturedProfile;
use crate::host_log::{log, LogLevel};
use crate::session::current::{current_session, with_lifecycle_lock};
use crate::session::drain_control::{CollectionStep, GUARD_COLLECTION};
use crate::session::Session;
use spanprof_aggregate::SampleSelection;
use spanprof_profile::{transform, ProfilesData};
use spanprof_signal::SampleKind;

/// Timeout for the drain thread: the caller may be the thread of the program's event loop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The wall-clock samples of one thread. The wall sampler runs at `wall_rate` meanwhile, also with `wall=false`. Dropping it
/// discards the samples.
pub struct WallCollection {
    thread_id: u32,
    /// The session and the number of the collection in it.
    open: Option<(Arc<Session>, u32)>,
    /// Samples of earlier sessions.
    parts: Vec<ProfilesData>,
}

impl WallCollection {
    /// Begins to collect samples of the calling thread. Without a running profiler there are none.
    pub fn begin() -> Self {
        let mut collection = Self { thread_id: spanprof_os::thread_id(), open: None, parts: Vec::new() };
        collection.resume();
        collection
    }

    /// Continues with the profiler that is running now, if it is another one.
    pub fn resume(&mut self) {
        let current = current_session();
        if let (Some((open, _)), Some(current)) = (&self.open, &current) {
            if Arc::ptr_eq(open, current) {
                return;
            }
        }
        let part = self.close();
        self.parts.extend(part);
        let number = next_number();
        let is_begun = |session: &Arc<Session>| session.begin_wall_collection(number, self.thread_id);
        self.open = current.filter(is_begun).map(|session| (session, number));
    }

    /// Ends the collection. Waits until the drain thread has processed the samples taken so far, at most 2 s. The samples until
    /// the end of a profiler that has stopped meanwhile are kept.
    pub fn end(mut self) -> CapturedProfile {
        let mut parts = std::mem::take(&mut self.parts);
        parts.extend(self.close());
        CapturedProfile(transform::merge(&parts))
    }

    fn close(&mut self) -> Option<ProfilesData> {
        let (session, number) = self.open.take()?;
        session.end_wall_collection(number)
    }
}

impl Drop for WallCollection {
    fn drop(&mut self) {
        self.close();
    }
}

/// The objects in use now, as in the heap profile; `None` if the profiler does not run, or has no heap profile.
pub fn objects_in_use() -> Option<CapturedProfile> {
    let session = current_session().filter(|session| session.is_running())?;
    if !session.config.active.load().heap || session.sampling.no_heap_reason.load().is_some() {
        return None;
    }
    let number = next_number();
    session.control.collect(number, CollectionStep::End(vec![SampleKind::InUse]), DRAIN_TIMEOUT, session.inbox);
    let data = session.control.take_collected(number);
    session.control.cancel_collection(number, session.inbox);
    data.map(CapturedProfile)
}

fn next_number() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(GUARD_COLLECTION);
    // After 2^32 collections a number is used again, but not that of pulls or the guard.
    LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(GUARD_COLLECTION + 1)
}

impl Session {
    fn begin_wall_collection(&self, number: u32, thread_id: u32) -> bool {
        if !self.is_running() || self.config.safe_mode {
            return false;
        }
        self.set_wall_collections(|count| count + 1);
        if self.sampling.wall().is_none() {
            self.set_wall_collections(|count| count - 1);
            let without = if self.config.active.load().signals { "" } else { " with signals=false" };
            log(LogLevel::Warning, &format!("spanprof: no wall-clock samples: this runtime has none{without}"));
            return false;
        }
        // Samples of the time before.
        self.release_wall(false);
        let selection =
            SampleSelection { thread_id: Some(thread_id), ..SampleSelection::of_kinds(&[SampleKind::Wall]) };
        let is_begun = self.control.collect(number, CollectionStep::Begin(selection), DRAIN_TIMEOUT, self.inbox);
        if !is_begun {
            self.log_late("is empty");
            // Its result would be discarded: the caller does not wait for the drain thread a second time.
            self.close_wall_collection(number);
        }
        is_begun
    }

    /// A collected profile is incomplete because the drain thread was too late.
    fn log_late(&self, consequence: &str) {
        if self.is_alive() {
            let limit_s = DRAIN_TIMEOUT.as_secs();
            let reason = format!("the drain thread had not processed the samples before it within {limit_s} s");
            let text = format!("spanprof: a collected profile {consequence}: {reason}; collect for longer, or later");
            log(LogLevel::Warning, &text);
        }
    }

    fn end_wall_collection(&self, number: u32) -> Option<ProfilesData> {
        if !self.is_of_this_process() {
            return None;
        }
        // The end of the session completes its collections.
        if self.is_alive() {
            self.release_wall(false);
            let end = CollectionStep::End(vec![SampleKind::Wall]);
            if !self.control.collect(number, end, DRAIN_TIMEOUT, self.inbox) {
                self.log_late("is incomplete");
            }
        }
        let data = self.control.take_collected(number);
        self.close_wall_collection(number);
        data
    }

    fn close_wall_collection(&self, number: u32) {
        self.control.cancel_collection(number, self.inbox);
        self.set_wall_collections(|count| count - 1);
    }

    /// Changes the number of collections of wall-clock samples; starts or ends the wall sampler.
    fn set_wall_collections(&self, change: impl FnOnce(u32) -> u32) {
        with_lifecycle_lock(|| {
            let requested = self.config.requested.load_full();
            let before = self.needs_wall_sampler(&requested);
            let count = &self.sampling.wall_collections;
            count.store(change(count.load(Ordering::Acquire)), Ordering::Release);
            match (before, self.needs_wall_sampler(&requested)) {
                _ if !self.is_alive() => {}
                (false, true) => {
                    if let Err(error) = self.start_wall() {
                        log(LogLevel::Warning, &format!("spanprof: no wall-clock samples: {error}"));
                    }
                }
                (true, false) => self.stop_wall(),
                _ => self.update_wall(),
            }
        });
    }
}
