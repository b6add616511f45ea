//! The profile of one piece of work: every sample of a scope and of all contexts that derive from it, on any thread. The
//! continuous profile has the same samples.

use std::future::Future;

use crate::api::labels::{tag_future, tag_wrapper, Labels};
use spanprof_profiler::CapturedProfile;

/// Runs `work` and returns its result and its own profile: the samples of this thread meanwhile, and of every thread and task
/// that runs in a context derived from it ([`bind`](crate::bind), [`tag_future`]). The profile is empty if no profiler runs, or
/// if `work` was shorter than a sampling period.
///
/// ```
/// let (total, profile) = spanprof::capture(|| 1 + 1);
/// assert_eq!(total, 2);
/// # let _ = profile.pprof();
/// ```
pub fn capture<R>(work: impl FnOnce() -> R) -> (R, CapturedProfile) {
    let open = OpenCapture::begin();
    let result = tag_wrapper(open.labels(), work);
    (result, open.end())
}

/// As [`capture`], for a future, on any thread that polls it. Waits for the last samples on the thread of the last poll, for
/// some milliseconds.
pub async fn capture_future<F: Future>(future: F) -> (F::Output, CapturedProfile) {
    let open = OpenCapture::begin();
    let result = tag_future(open.labels(), future).await;
    (result, open.end())
}

/// An open capture. Dropping it discards its samples.
#[derive(Debug)]
pub struct OpenCapture(spanprof_profiler::RunningCapture);

impl OpenCapture {
    /// Begins a capture. Samples belong to it in scopes with [`OpenCapture::labels`].
    pub fn begin() -> Self {
        Self(spanprof_profiler::RunningCapture::begin())
    }

    /// The scope's labels: no label, only the number of the capture.
    pub fn labels(&self) -> Labels {
        Labels::of_capture(self.0.number())
    }

    /// The number that contexts carry; 0 without a profiler.
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// Ends the capture. Waits until the drain thread has processed the samples taken so far, at most 2 s.
    pub fn end(self) -> CapturedProfile {
        self.0.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_aggregate::context::{context_row, sampled_context_row};
    use spanprof_os::thread_context;

    #[test]
    fn nested_scopes_spans_and_bound_work_inherit_the_capture() {
        let labels = Labels::of_capture(7);
        let capture = || context_row(thread_context::current()).unwrap_or_default().capture;
        let link = [("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"), ("span_id", "00f067aa0ba902b7")];
        tag_wrapper(labels, || {
            assert_eq!(capture(), 7);
            tag_wrapper([("a", "1")], || assert_eq!(capture(), 7));
            tag_wrapper(link, || tag_wrapper([("a", "1")], || assert_eq!(capture(), 7)));
            let bound = spanprof::bind(capture);
            assert_eq!(std::thread::spawn(bound).join().unwrap(), 7);
            tag_wrapper(Labels::of_capture(8), || assert_eq!(capture(), 8));
            let id = thread_context::current();
            assert_eq!(sampled_context_row(id).map(|row| row.capture), Some(7));
        });
        assert_eq!(capture(), 0);
        tag_wrapper(link, || tag_wrapper(labels, || assert_eq!(capture(), 7)));
    }

    #[test]
    fn a_capture_without_a_profiler_runs_its_work_and_is_empty() {
        let (result, profile) = capture(|| 5);
        assert!(result == 5 && profile.is_empty() && profile.types().is_empty());
        let unknown = profile.save("capture.svg").unwrap_err();
        assert!(unknown.message.contains("no known format"), "{}", unknown.message);
    }
}
