//! Labels for a scope in Rust: a closure, a block, or a future. The Rust form of `tag_wrapper`, which every language has.
//! Not here: interning of labels and contexts (`context`).

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use crate::context::{context_row, merge, open_context, pin_context, with_labels, ContextRow, PinnedContext};
use crate::sys::thread_context;

/// Labels prepared in advance, so that entering a scope costs tens of nanoseconds.
///
/// ```
/// let labels = spanprof::Labels::new(&[("route", "/cart"), ("method", "GET")]);
/// let total = spanprof::tag_wrapper(&labels, || 1 + 1);
/// # assert_eq!(total, 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels(ContextRow);

impl Labels {
    /// Interns labels. Valid `trace_id` and `span_id` among them become the link of the samples.
    pub fn new(labels: &[(&str, &str)]) -> Self {
        Self(with_labels(ContextRow::default(), labels))
    }
}

/// A value that labels a scope: [`Labels`], or pairs of key and value.
pub trait AsLabels {
    /// The interned labels.
    fn as_labels(&self) -> Labels;
}

impl AsLabels for Labels {
    fn as_labels(&self) -> Labels {
        *self
    }
}

impl AsLabels for [(&str, &str)] {
    fn as_labels(&self) -> Labels {
        Labels::new(self)
    }
}

impl<const N: usize> AsLabels for [(&str, &str); N] {
    fn as_labels(&self) -> Labels {
        Labels::new(self)
    }
}

impl<T: AsLabels + ?Sized> AsLabels for &T {
    fn as_labels(&self) -> Labels {
        (**self).as_labels()
    }
}

/// Runs `work` with labels on every sample of this thread. Scopes nest, and end on every return path, panics included.
pub fn tag_wrapper<R>(labels: impl AsLabels, work: impl FnOnce() -> R) -> R {
    let _scope = TagScope::enter(labels);
    work()
}

/// Labels this thread until the value is dropped. Scopes must end in the reverse order of their start.
#[must_use = "the labels end when the scope is dropped"]
pub struct TagScope {
    outer: u64,
    _pin: PinnedContext,
    _of_this_thread: PhantomData<*const ()>,
}

impl TagScope {
    /// Starts a scope.
    pub fn enter(labels: impl AsLabels) -> Self {
        let outer = thread_context::current();
        Self::enter_id(inner_id(outer, labels.as_labels()))
    }

    fn enter_id(id: u64) -> Self {
        let pin = pin_context(id);
        Self { outer: thread_context::replace_current(id), _pin: pin, _of_this_thread: PhantomData }
    }
}

impl Drop for TagScope {
    fn drop(&mut self) {
        thread_context::replace_current(self.outer);
    }
}

/// The context of labels inside an outer context.
fn inner_id(outer: u64, Labels(mut row): Labels) -> u64 {
    if row.link.is_empty() {
        row.link = active_span();
    }
    // An expired outer context has no labels left to inherit.
    let parent = if outer == 0 { ContextRow::default() } else { context_row(outer).unwrap_or_default() };
    if parent == ContextRow::default() {
        return open_context(row);
    }
    let merged = merge(parent, row);
    if merged == parent {
        outer
    } else {
        open_context(merged)
    }
}

/// The active span of OpenTelemetry's context of this thread.
#[cfg(feature = "opentelemetry")]
fn active_span() -> crate::context::Link {
    use opentelemetry::trace::TraceContextExt;
    opentelemetry::Context::map_current(|context| {
        let span = context.span();
        let span = span.span_context();
        match span.is_valid() {
            true => crate::context::Link { trace_id: span.trace_id().to_bytes(), span_id: span.span_id().to_bytes() },
            false => crate::context::Link::default(),
        }
    })
}

#[cfg(not(feature = "opentelemetry"))]
fn active_span() -> crate::context::Link {
    crate::context::Link::default()
}

pin_project_lite::pin_project! {
    /// A future whose polls carry labels, on any thread.
    pub struct TaggedFuture<F> {
        #[pin]
        future: F,
        labels: Labels,
        // The context of the last poll: outer context, active span, context id, and its pin.
        opened: Option<(u64, crate::context::Link, u64, PinnedContext)>,
    }
}

/// Puts labels on every sample of a future, on any thread that polls it.
///
/// ```
/// let work = spanprof::tag_future([("route", "/cart")], async { 1 + 1 });
/// # let _ = work;
/// ```
pub fn tag_future<F: Future>(labels: impl AsLabels, future: F) -> TaggedFuture<F> {
    TaggedFuture { future, labels: labels.as_labels(), opened: None }
}

impl<F: Future> Future for TaggedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let outer = thread_context::current();
        let span = active_span();
        let id = match this.opened {
            // The same outer context and span as in the last poll need no new context.
            Some((known_outer, known_span, id, _)) if (*known_outer, *known_span) == (outer, span) => *id,
            _ => {
                let id = inner_id(outer, *this.labels);
                *this.opened = Some((outer, span, id, pin_context(id)));
                id
            }
        };
        let _scope = TagScope::enter_id(id);
        this.future.poll(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::labels_of;

    fn current_labels() -> Vec<(String, String)> {
        labels_of(context_row(thread_context::current()).unwrap().label_set)
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn scopes_nest_and_are_restored_after_a_panic() {
        tag_wrapper([("a", "1")], || {
            let caught = std::panic::catch_unwind(|| {
                tag_wrapper([("b", "2"), ("a", "3")], || {
                    assert_eq!(current_labels(), pairs(&[("a", "3"), ("b", "2")]));
                    std::panic::resume_unwind(Box::new("on purpose"));
                })
            });
            assert!(caught.is_err());
            assert_eq!(current_labels(), pairs(&[("a", "1")]));
        });
        assert!(current_labels().is_empty());
    }

    #[test]
    fn the_labels_of_a_future_are_set_only_while_it_is_polled() {
        let work = tag_future([("task", "t")], async {
            assert_eq!(current_labels(), pairs(&[("outer", "o"), ("task", "t")]));
            std::future::poll_fn(|_| Poll::<()>::Pending).await;
        });
        let mut work = std::pin::pin!(work);
        let mut task = TaskContext::from_waker(std::task::Waker::noop());
        tag_wrapper([("outer", "o")], || {
            assert!(work.as_mut().poll(&mut task).is_pending());
            assert_eq!(current_labels(), pairs(&[("outer", "o")]));
        });
    }

    #[test]
    fn inner_scopes_inherit_the_link_and_equal_labels_reuse_the_context() {
        let trace = [("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"), ("span_id", "00f067aa0ba902b7")];
        tag_wrapper(trace, || {
            let outer = thread_context::current();
            tag_wrapper([], || assert_eq!(thread_context::current(), outer));
            tag_wrapper([("k", "v")], || {
                let row = context_row(thread_context::current()).unwrap();
                assert_eq!(row.link.span_id[7], 0xb7);
                assert_eq!(current_labels(), pairs(&[("k", "v")]));
            });
        });
    }

    #[cfg(feature = "opentelemetry")]
    #[test]
    fn the_span_active_in_opentelemetrys_context_is_the_link() {
        use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
        let span = |number: u8| {
            let (trace, span) = (TraceId::from_bytes([number; 16]), SpanId::from_bytes([number; 8]));
            SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default())
        };
        let link = || context_row(thread_context::current()).unwrap().link.span_id;
        let first = opentelemetry::Context::new().with_remote_span_context(span(1)).attach();
        tag_wrapper([("k", "v")], || {
            assert_eq!(link(), [1; 8]);
            let _second = opentelemetry::Context::new().with_remote_span_context(span(2)).attach();
            tag_wrapper([], || assert_eq!(link(), [2; 8]));
            assert_eq!(link(), [1; 8], "a scope keeps the span that was active at its start");
        });
        drop(first);
        tag_wrapper([("k", "v")], || assert_eq!(link(), [0; 8]));
    }
}
