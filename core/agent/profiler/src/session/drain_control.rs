//! Requests of other threads to the drain thread, and their results. Not here: the work (`drain_thread`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spanprof_aggregate::hash::WordMap;
use spanprof_aggregate::{SampleSelection, MAX_CAPTURES};
use spanprof_config::Config;
use spanprof_os::{CpuAccount, Inbox};
use spanprof_profile::ProfilesData;
use spanprof_signal::SampleKind;

/// Requests of other threads to the drain thread.
#[derive(Default)]
pub(crate) struct DrainControl {
    requests: Mutex<DrainRequests>,
    done: Condvar,
    /// Copy of `DrainRequests::ended` for threads that must not block: host threads, and a forked child, where a thread of
    /// the parent may hold the lock.
    ended: AtomicBool,
}

/// A changed configuration, and the ring position at which it takes effect.
pub(crate) struct ConfigChange {
    pub position: u64,
    pub config: Arc<Config>,
    /// The governor's comment on profiles.
    pub comment: String,
    /// Whether the open window ends at this position in any case.
    pub ends_window: bool,
    /// The clocks that ended at this position, by the number of their run, with their account.
    pub ended_clocks: Option<(u64, CpuAccount)>,
}

/// Number of the collection of a pull.
pub(crate) const PULL_COLLECTION: u32 = 0;

/// Number of the collection of a guard of `spanprof::pprof`. Other collections of the program have higher ones.
pub(crate) const GUARD_COLLECTION: u32 = 1;

/// State of a collection of samples.
#[derive(Debug)]
pub(crate) enum CollectionStep {
    /// Requested.
    Begin(SampleSelection),
    Running(SampleSelection),
    /// Requested; the collection continues.
    Read(Vec<SampleKind>),
    /// Requested; without an earlier `Begin` for those since the start.
    End(Vec<SampleKind>),
    Done(Box<ProfilesData>),
    /// Requested.
    Cancel,
}

impl CollectionStep {
    /// A copy of the request, if the drain thread has something to do.
    fn requested(&self) -> Option<Self> {
        match self {
            Self::Begin(selection) => Some(Self::Begin(selection.clone())),
            Self::Read(kinds) => Some(Self::Read(kinds.clone())),
            Self::End(kinds) => Some(Self::End(kinds.clone())),
            Self::Cancel => Some(Self::Cancel),
            Self::Running(_) | Self::Done(_) => None,
        }
    }

    /// The end of a running collection.
    fn end(&self) -> Option<Self> {
        match self {
            Self::Running(selection) => Some(Self::End(selection.kinds.clone())),
            other => other.requested(),
        }
    }

    /// Whether the request is about allocations.
    pub fn has_allocations(&self) -> bool {
        let (Self::Begin(SampleSelection { kinds, .. }) | Self::End(kinds)) = self else { return false };
        kinds.contains(&SampleKind::InUse)
    }
}

#[derive(Default)]
pub(crate) struct DrainRequests {
    /// Number of requests to close the window, and of those that are done.
    pub closes: u64,
    pub closes_done: u64,
    /// In the order of the requests.
    pub changes: Vec<ConfigChange>,
    /// By number.
    pub collections: WordMap<u32, CollectionStep>,
    /// By number, from the begin of each to the return of its profile.
    captures: WordMap<u32, CaptureRequest>,
    pub stop: bool,
    pub ended: bool,
}

/// A capture, whose thread does not wait for its begin: it may end before the drain thread has begun it.
#[derive(Default)]
struct CaptureRequest {
    is_begun: bool,
    is_ended: bool,
    /// The thread of an ended capture waits for its profile.
    is_awaited: bool,
    profile: Option<ProfilesData>,
}

impl DrainRequests {
    /// The captures to begin before the next samples, once.
    pub fn captures_to_begin(&mut self) -> Vec<u32> {
        let mut numbers = Vec::new();
        for (number, capture) in self.captures.iter_mut().filter(|(_, capture)| !capture.is_begun) {
            capture.is_begun = true;
            numbers.push(*number);
        }
        numbers
    }

    /// The captures to end after the samples before now.
    pub fn captures_to_end(&self) -> Vec<u32> {
        let is_requested = |capture: &CaptureRequest| capture.is_ended && capture.profile.is_none();
        self.captures.iter().filter(|(_, capture)| is_requested(capture)).map(|(number, _)| *number).collect()
    }

    /// Passes the profile of a capture to its thread, if that still waits.
    pub fn capture_ended(&mut self, number: u32, profile: ProfilesData) {
        match self.captures.get_mut(&number) {
            Some(capture) if capture.is_awaited => capture.profile = Some(profile),
            _ => drop(self.captures.remove(&number)),
        }
    }

    /// The requested steps of collections.
    pub fn requested_steps(&self) -> Vec<(u32, CollectionStep)> {
        self.collections.iter().filter_map(|(number, step)| Some((*number, step.requested()?))).collect()
    }

    /// As [`Self::requested_steps`] at the end of the session, which ends running collections too.
    pub fn steps_at_end(&self) -> Vec<(u32, CollectionStep)> {
        self.collections.iter().filter_map(|(number, step)| Some((*number, step.end()?))).collect()
    }
}

impl DrainControl {
    pub fn lock(&self) -> MutexGuard<'_, DrainRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, deadline: Instant, is_done: impl Fn(&DrainRequests) -> bool) -> bool {
        let mut requests = self.lock();
        loop {
            if is_done(&requests) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if requests.ended || left == Duration::ZERO {
                return is_done(&requests);
            }
            requests = self.done.wait_timeout(requests, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes the open window; true when that was done in time.
    pub fn close_window(&self, deadline: Instant, inbox: &Inbox) -> bool {
        let number = {
            let mut requests = self.lock();
            if requests.ended {
                return false;
            }
            requests.closes += 1;
            requests.closes
        };
        inbox.wake();
        self.wait(deadline, |requests| requests.closes_done >= number)
    }

    /// Begins a capture, before its first sample; false with too many.
    pub fn begin_capture(&self, number: u32) -> bool {
        let mut requests = self.lock();
        let open = requests.captures.values().filter(|capture| !capture.is_ended).count();
        let has_space = !requests.ended && open < MAX_CAPTURES;
        if has_space {
            requests.captures.insert(number, CaptureRequest::default());
        }
        has_space
    }

    /// Ends a capture and returns its samples; `None` when they are not complete in time. Without a deadline it does not wait.
    pub fn end_capture(&self, number: u32, deadline: Option<Instant>, inbox: &Inbox) -> Option<ProfilesData> {
        let is_complete = |capture: &CaptureRequest| capture.profile.is_some();
        if let Some(capture) = self.lock().captures.get_mut(&number) {
            (capture.is_ended, capture.is_awaited) = (true, deadline.is_some());
        }
        inbox.wake();
        self.wait(deadline?, |requests| requests.captures.get(&number).is_none_or(is_complete));
        let mut requests = self.lock();
        let capture = requests.captures.get_mut(&number)?;
        // The drain thread removes a capture that is late.
        capture.is_awaited = false;
        let profile = capture.profile.take()?;
        requests.captures.remove(&number);
        Some(profile)
    }

    /// Ends the drain thread; true when it closed its last window and ended in time.
    pub fn stop(&self, deadline: Instant, inbox: &Inbox) -> bool {
        self.lock().stop = true;
        inbox.wake();
        self.wait(deadline, |requests| requests.ended)
    }

    /// Requests a step of a collection; true when the drain thread has done it in time.
    pub fn collect(&self, number: u32, step: CollectionStep, timeout: Duration, inbox: &Inbox) -> bool {
        {
            let mut requests = self.lock();
            if requests.ended || requests.stop {
                return false;
            }
            requests.collections.insert(number, step);
        }
        inbox.wake();
        self.wait(Instant::now() + timeout, |requests| {
            requests.collections.get(&number).is_none_or(|step| step.requested().is_none())
        })
    }

    /// Ends a collection; its samples are discarded.
    pub fn cancel_collection(&self, number: u32, inbox: &Inbox) {
        let mut requests = self.lock();
        if let Some(step) = requests.collections.get_mut(&number) {
            *step = CollectionStep::Cancel;
            drop(requests);
            inbox.wake();
        }
    }

    /// The collected profiles, once.
    pub fn take_collected(&self, number: u32) -> Option<ProfilesData> {
        let mut requests = self.lock();
        match requests.collections.remove(&number)? {
            CollectionStep::Done(data) => Some(*data),
            other => {
                requests.collections.insert(number, other);
                None
            }
        }
    }

    /// Sleeps until the deadline; false if the drain thread ends or is about to.
    pub fn sleep_while_running(&self, deadline: Instant) -> bool {
        !self.wait(deadline, |requests| requests.ended || requests.stop)
    }

    /// Adds a change at the current position of the ring.
    pub fn change_config(&self, change: ConfigChange, inbox: &Inbox) {
        let mut requests = self.lock();
        requests.changes.push(ConfigChange { position: inbox.ring().head(), ..change });
        drop(requests);
        inbox.wake();
    }

    /// Updates the state of the requests and notifies waiting threads. Called by the drain thread.
    pub fn complete(&self, update: impl FnOnce(&mut DrainRequests)) {
        let mut requests = self.lock();
        update(&mut requests);
        self.ended.store(requests.ended, Ordering::Release);
        drop(requests);
        self.done.notify_all();
    }

    /// Whether the drain thread has ended. Takes no lock.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
