//! Collections and captures at a wakeup of the drain thread: both are profiles beside the windows.

use super::{unix_offset_ns, DrainThread};
use crate::session::drain_control::CollectionStep;
use spanprof_aggregate::CollectionTime;

impl DrainThread<'_> {
    /// Does the requested steps of collections, after the samples before them were drained.
    pub(super) fn follow_collections(&mut self, steps: Vec<(u32, CollectionStep)>) {
        let clocks = self.session.sampling.clocks.load_full();
        let time = || CollectionTime {
            now_monotonic_ns: spanprof_os::monotonic_ns(),
            unix_offset_ns: unix_offset_ns(),
            unattributed_ns: clocks.as_ref().map_or(0, |clocks| clocks.account().unattributed_ns()),
        };
        for (number, step) in steps {
            let is_cancel = matches!(step, CollectionStep::Cancel);
            let next = match step {
                CollectionStep::Begin(selection) => {
                    self.engine.begin_collection(number, selection.clone(), time());
                    Some(CollectionStep::Running(selection))
                }
                CollectionStep::Read(kinds) => {
                    Some(CollectionStep::Done(Box::new(self.engine.read_collection(number, &kinds, time()))))
                }
                CollectionStep::End(kinds) => {
                    Some(CollectionStep::Done(Box::new(self.engine.end_collection(number, &kinds, time()))))
                }
                _ => {
                    self.engine.cancel_collection(number);
                    None
                }
            };
            self.session.control.complete(|requests| {
                let is_canceled = matches!(requests.collections.get(&number), Some(CollectionStep::Cancel));
                match next {
                    // A cancellation that arrived meanwhile is done at the next wakeup.
                    _ if is_canceled && !is_cancel => {}
                    Some(next) => drop(requests.collections.insert(number, next)),
                    None => drop(requests.collections.remove(&number)),
                }
            });
        }
    }

    /// Completes captures, whose samples are drained.
    pub(super) fn end_captures(&mut self, numbers: &[u32]) {
        if numbers.is_empty() {
            return;
        }
        let (now_ns, offset_ns) = (spanprof_os::monotonic_ns(), unix_offset_ns());
        let profiles: Vec<_> =
            numbers.iter().map(|number| (*number, self.engine.end_capture(*number, now_ns, offset_ns))).collect();
        self.session.control.complete(|requests| {
            for (number, profile) in profiles {
                requests.capture_ended(number, profile);
            }
        });
    }
}
