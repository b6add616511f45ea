//! The CPU samples of the guard of `spanprof::pprof`, collected beside the open window. Not here: pulls, which may run meanwhile
//! (`pull`).

use crate::lifecycle::ProfilerHandle;
use crate::pull::answer::DRAIN_TIMEOUT;
use crate::pull::ProfileName;
use crate::session::drain_control::{CollectionStep, GUARD_COLLECTION};
use spanprof_aggregate::SampleSelection;
use spanprof_profile::ProfilesData;
use spanprof_signal::SampleKind;

const KINDS: [SampleKind; 1] = [SampleKind::Cpu];

impl ProfilerHandle {
    /// Begins to collect. The error is the reason why there are no CPU samples.
    #[doc(hidden)]
    pub fn begin_guard(&self) -> Result<(), String> {
        let ended = || "the profiler stopped meanwhile".to_owned();
        let session = self.session().ok_or_else(ended)?;
        if let Some(reason) = session.unavailable(ProfileName::Profile, &session.config.active.load()) {
            return Err(reason);
        }
        let step = CollectionStep::Begin(SampleSelection { by_thread: true, ..SampleSelection::of_kinds(&KINDS) });
        session.control.collect(GUARD_COLLECTION, step, DRAIN_TIMEOUT, session.inbox).then_some(()).ok_or_else(ended)
    }

    /// The samples so far; `None` when the profiler stopped. One call at a time.
    #[doc(hidden)]
    pub fn read_guard(&self) -> Option<ProfilesData> {
        let session = self.session()?;
        let step = CollectionStep::Read(KINDS.to_vec());
        if !session.control.collect(GUARD_COLLECTION, step, DRAIN_TIMEOUT, session.inbox) {
            return None;
        }
        session.control.take_collected(GUARD_COLLECTION)
    }

    /// Ends the collection.
    #[doc(hidden)]
    pub fn end_guard(&self) {
        if let Some(session) = self.session() {
            session.control.collect(GUARD_COLLECTION, CollectionStep::Cancel, DRAIN_TIMEOUT, session.inbox);
        }
    }
}
