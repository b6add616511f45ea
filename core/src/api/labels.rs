//! Labels for a scope in Rust: a closure, a block, or a future; and work bound to the context of the thread that hands it
//! over. The Rust form of `tag_wrapper` and `bind`, which every language has. Not here: interning of labels and contexts
//! (`context`).

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use spanprof_aggregate::context::{
    context_row, merge, open_context, pin_context, with_labels, ContextRow, LabelSetId, Link, PinnedContext,
};
use spanprof_os::thread_context;

use super::open_scopes::SCOPES;

/// Prepared labels: an immutable label set, interned once, so that entering a scope costs tens of nanoseconds. The limits of
/// labels apply when it is made. It may be made before `start` and used on any thread.
///
/// ```
/// let labels = spanprof::Labels::new(&[("route", "/cart"), ("method", "GET")]);
/// let total = spanprof::tag_wrapper(&labels, || 1 + 1);
/// # assert_eq!(total, 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels(pub(crate) ContextRow);

impl Labels {
    /// Interns labels. Valid `trace_id` and `span_id` among them become the link of the samples.
    pub fn new(labels: &[(&str, &str)]) -> Self {
        Self(with_labels(ContextRow::default(), labels))
    }

    /// No label, but the number of a capture.
    pub(crate) fn of_capture(number: u32) -> Self {
        Self(ContextRow { capture: number, ..ContextRow::default() })
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

/// Labels this thread until the value is dropped. Up to 16 open scopes may end in any order: the labels are those of the open ones.
///
/// In an `async` block, a scope must end before the next `.await`: use [`tag_future`] for a part that waits. A future that keeps
/// a scope across an `.await` is not `Send`, so an executor with several threads refuses it:
///
/// ```compile_fail,E0277
/// fn spawn(_task: impl std::future::Future + Send) {}
/// spawn(async {
///     let _scope = spanprof::TagScope::enter([("route", "/cart")]);
///     std::future::ready(()).await;
/// });
/// ```
///
/// An executor of one thread (`LocalSet`, `block_on`) accepts it. The labels then stay on the thread while the future waits, so
/// samples of other tasks carry them. Clippy reports such futures with this line in `clippy.toml`:
/// `await-holding-invalid-types = ["spanprof::TagScope"]`.
#[must_use = "the labels end when the scope is dropped"]
pub struct TagScope {
    /// 0: it is not listed, because 16 others are, and ends in the reverse order.
    number: u32,
    outer: u64,
    /// Whether the scopes that are open inside it end with it: they may belong to a future that waits.
    ends_inner: bool,
    _pin: PinnedContext,
    _of_this_thread: PhantomData<*const ()>,
}

impl TagScope {
    /// Starts a scope.
    pub fn enter(labels: impl AsLabels) -> Self {
        let labels = labels.as_labels();
        Self::enter_id(inner_id(thread_context::current(), labels), Some(labels.0.label_set), false)
    }

    fn enter_id(id: u64, labels: Option<LabelSetId>, ends_inner: bool) -> Self {
        let pin = pin_context(id);
        let outer = thread_context::replace_current(id);
        let number = SCOPES.with(|scopes| scopes.push(labels, outer));
        Self { number, outer, ends_inner, _pin: pin, _of_this_thread: PhantomData }
    }
}

impl Drop for TagScope {
    fn drop(&mut self) {
        match self.number {
            0 => _ = thread_context::replace_current(self.outer),
            number => SCOPES.with(|scopes| scopes.end(number, self.ends_inner)),
        }
    }
}

/// The context of labels inside an outer context.
fn inner_id(outer: u64, Labels(mut row): Labels) -> u64 {
    if row.link.is_empty() {
        row.link = active_span();
        let local_root = local_root_of(row.link.span_id);
        row.local_root_span_id = if local_root == [0; 8] { row.local_root_span_id } else { local_root };
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
pub(crate) fn active_span() -> Link {
    use opentelemetry::trace::TraceContextExt;
    opentelemetry::Context::map_current(|context| {
        let span = context.span();
        let span = span.span_context();
        if span.is_valid() {
            Link { trace_id: span.trace_id().to_bytes(), span_id: span.span_id().to_bytes() }
        } else {
            Link::default()
        }
    })
}

#[cfg(feature = "opentelemetry-sdk")]
pub(crate) use crate::otel::local_root_of;

#[cfg(not(feature = "opentelemetry-sdk"))]
pub(crate) fn local_root_of(_: [u8; 8]) -> [u8; 8] {
    [0; 8]
}

#[cfg(not(feature = "opentelemetry"))]
pub(crate) fn active_span() -> Link {
    Link::default()
}

pin_project_lite::pin_project! {
    /// A future whose polls and destructor carry labels, on any thread.
    pub struct TaggedFuture<F> {
        // `None` during the destructor.
        #[pin]
        future: Option<F>,
        labels: PolledLabels,
    }

    impl<F> PinnedDrop for TaggedFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _scope = this.labels.enter();
            this.future.set(None);
        }
    }
}

/// Labels of work that is polled.
pub(crate) struct PolledLabels {
    pub(crate) labels: Labels,
    /// Replaces the outer context, instead of `labels`.
    bound: Option<BoundContext>,
    /// The context of the last poll: outer context, active span, context id, and its pin.
    opened: Option<(u64, Link, u64, PinnedContext)>,
}

impl PolledLabels {
    pub(crate) fn new(labels: Labels) -> Self {
        Self { labels, bound: None, opened: None }
    }

    fn bound(context: BoundContext) -> Self {
        Self { bound: Some(context), ..Self::new(Labels::default()) }
    }

    /// Starts the scope of a poll, or of the destructor.
    pub(crate) fn enter(&mut self) -> TagScope {
        if let Some(bound) = &self.bound {
            return TagScope::enter_id(bound.id, None, true);
        }
        let outer = thread_context::current();
        let span = active_span();
        let id = match &self.opened {
            // The same outer context and span as in the last poll need no new context.
            Some((known_outer, known_span, id, _)) if (*known_outer, *known_span) == (outer, span) => *id,
            _ => {
                let id = inner_id(outer, self.labels);
                self.opened = Some((outer, span, id, pin_context(id)));
                id
            }
        };
        TagScope::enter_id(id, Some(self.labels.0.label_set), true)
    }
}

/// Puts labels on every sample of a future, on any thread that polls or drops it.
///
/// ```
/// let work = spanprof::tag_future([("route", "/cart")], async { 1 + 1 });
/// # let _ = work;
/// ```
pub fn tag_future<F: Future>(labels: impl AsLabels, future: F) -> TaggedFuture<F> {
    TaggedFuture { future: Some(future), labels: PolledLabels::new(labels.as_labels()) }
}

impl<F: Future> Future for TaggedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let _scope = this.labels.enter();
        this.future.as_pin_mut().map_or(Poll::Pending, |future| future.poll(task))
    }
}

/// The context of a thread, pinned.
struct BoundContext {
    id: u64,
    _pin: PinnedContext,
}

impl BoundContext {
    /// The labels and the span of this thread; without a scope that set one, OpenTelemetry's active span.
    fn current() -> Self {
        let id = inner_id(thread_context::current(), Labels::default());
        Self { id, _pin: pin_context(id) }
    }
}

/// Binds `work` to the labels and the span that are current now: it runs under them, on any thread, instead of those of its
/// caller, which are restored afterwards. Outside all scopes it is bound to no labels. An iterator that `work` returns runs
/// under the labels of the code that advances it; for a future use [`bind_future`].
///
/// ```
/// let price = spanprof::tag_wrapper([("route", "/cart")], || spanprof::bind(|| 1 + 1));
/// assert_eq!(std::thread::spawn(price).join().unwrap(), 2);
/// ```
pub fn bind<R>(work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let bound = BoundContext::current();
    move || {
        let _scope = TagScope::enter_id(bound.id, None, true);
        work()
    }
}

/// As [`bind`], for a future: every poll, and its destructor, run under the labels and the span that are current now.
///
/// ```
/// let work = spanprof::tag_wrapper([("route", "/cart")], || spanprof::bind_future(async { 1 + 1 }));
/// # let _ = work;
/// ```
pub fn bind_future<F: Future>(future: F) -> impl Future<Output = F::Output> {
    TaggedFuture { future: Some(future), labels: PolledLabels::bound(BoundContext::current()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_aggregate::context::labels_of;

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
    fn a_scope_that_a_waiting_future_keeps_ends_with_its_poll() {
        let work = tag_future([("task", "t")], async {
            let _kept = TagScope::enter([("kept", "k")]);
            std::future::poll_fn(|_| Poll::<()>::Pending).await;
        });
        let mut work = Box::pin(work);
        let mut task = TaskContext::from_waker(std::task::Waker::noop());
        assert!(work.as_mut().poll(&mut task).is_pending());
        assert!(current_labels().is_empty());
        tag_wrapper([("outer", "o")], || {
            drop(work);
            assert_eq!(current_labels(), pairs(&[("outer", "o")]));
        });
    }

    #[test]
    fn a_scope_that_ends_takes_its_own_labels_and_link_away_in_any_order() {
        let trace = [("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"), ("span_id", "00f067aa0ba902b7")];
        let state = || (current_labels(), context_row(thread_context::current()).unwrap().link.span_id[7]);
        let (a, b, c) =
            (TagScope::enter([("a", "1")]), TagScope::enter([("a", "1"), ("b", "2")]), TagScope::enter(trace));
        drop(a);
        assert_eq!(state(), (pairs(&[("a", "1"), ("b", "2")]), 0xb7));
        let d = TagScope::enter([("d", "4")]);
        drop(c);
        assert_eq!(state(), (pairs(&[("a", "1"), ("b", "2"), ("d", "4")]), 0));
        drop(b);
        assert_eq!(state(), (pairs(&[("d", "4")]), 0));
        drop(d);
        assert_eq!(thread_context::current(), 0);
    }

    #[test]
    fn scopes_beyond_the_limit_end_in_the_reverse_order() {
        let scopes: Vec<_> = (0..40).map(|n| TagScope::enter([("n", n.to_string().as_str())])).collect();
        assert_eq!(current_labels(), pairs(&[("n", "39")]));
        for (n, scope) in scopes.into_iter().enumerate().rev() {
            assert_eq!(current_labels(), pairs(&[("n", n.to_string().as_str())]));
            drop(scope);
        }
        assert!(current_labels().is_empty());
    }

    #[test]
    fn bound_work_has_the_labels_and_the_span_of_its_binding_on_any_thread() {
        let trace = [("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"), ("span_id", "00f067aa0ba902b7"), ("a", "1")];
        let link = || context_row(thread_context::current()).unwrap().link;
        let bound = tag_wrapper(trace, || bind(move || (current_labels(), link().span_id[7])));
        let elsewhere = std::thread::spawn(|| tag_wrapper([("b", "2")], || (bound(), current_labels())));
        assert_eq!(elsewhere.join().unwrap(), ((pairs(&[("a", "1")]), 0xb7), pairs(&[("b", "2")])));
    }

    #[test]
    fn a_panic_of_bound_work_restores_the_labels_of_its_caller() {
        let bound = tag_wrapper([("a", "1")], || bind(|| -> () { std::panic::resume_unwind(Box::new("on purpose")) }));
        tag_wrapper([("b", "2")], || {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(bound)).is_err());
            assert_eq!(current_labels(), pairs(&[("b", "2")]));
        });
    }

    #[test]
    fn a_bound_future_has_the_labels_of_its_binding_while_it_is_polled() {
        let work = tag_wrapper([("a", "1")], || {
            bind_future(async {
                assert_eq!(current_labels(), pairs(&[("a", "1")]));
                std::future::poll_fn(|_| Poll::<()>::Pending).await;
            })
        });
        let mut work = std::pin::pin!(work);
        let mut task = TaskContext::from_waker(std::task::Waker::noop());
        for _ in 0..2 {
            tag_wrapper([("b", "2")], || {
                assert!(work.as_mut().poll(&mut task).is_pending());
                assert_eq!(current_labels(), pairs(&[("b", "2")]));
            });
        }
    }

    #[test]
    fn the_destructor_of_a_cancelled_future_has_its_labels() {
        struct Guard<'a>(&'a std::cell::RefCell<Vec<(String, String)>>);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.replace(current_labels());
            }
        }
        let dropped = std::cell::RefCell::new(Vec::new());
        async fn waiting(_guard: Guard<'_>) {
            std::future::pending::<()>().await;
        }
        fn cancel(work: impl Future<Output = ()>) {
            let mut work = Box::pin(work);
            let mut task = TaskContext::from_waker(std::task::Waker::noop());
            assert!(work.as_mut().poll(&mut task).is_pending());
            tag_wrapper([("c", "3")], || drop(work));
        }
        cancel(tag_future([("a", "1")], waiting(Guard(&dropped))));
        assert_eq!(dropped.take(), pairs(&[("a", "1"), ("c", "3")]));
        cancel(tag_wrapper([("b", "2")], || bind_future(waiting(Guard(&dropped)))));
        assert_eq!(dropped.take(), pairs(&[("b", "2")]));
        drop(tag_future([("a", "1")], waiting(Guard(&dropped))));
        assert_eq!((dropped.take(), current_labels()), (pairs(&[("a", "1")]), pairs(&[])));
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
        let bound = bind(link);
        assert_eq!(std::thread::spawn(bound).join().unwrap(), [1; 8]);
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
