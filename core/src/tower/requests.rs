//! A layer for the requests of a Rust service: labels their samples, and reports their ends. The form of the middlewares that other
//! languages have.

use std::future::Future;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::Instant;

use http::{Extensions, HeaderMap, Method, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

use crate::api::labels::{active_span, local_root_of, Labels, PolledLabels};
use crate::runtime::await_waker::Awaits;
use spanprof_aggregate::context::{context_row, in_request, link_of_hex, with_labels, ContextRow, Link};
use spanprof_os::thread_context;
use spanprof_profiler::{binding, RequestEnd};

/// The route of a request: the template of its path, of which a service has few. `None` for none, which leaves the label out.
pub type RouteOf = for<'a> fn(&'a Uri, &'a Extensions) -> Option<&'a str>;

/// A layer whose services profile requests. Their samples have the labels `http.request.method` and `http.route`, on each thread that
/// polls or drops the response or its body, and trace and span of the caller's `traceparent` header where this process has no span. Each request
/// is counted with its duration, from the call until its body was sent or dropped, and with an error if the status is 500 or more,
/// or if the service fails or panics.
///
/// ```ignore
/// let layer = RequestLayer::new(|_, extensions| extensions.get::<MatchedPath>().map(MatchedPath::as_str)); // axum
/// let app = axum::Router::new().route("/cart/{id}", get(cart)).layer(layer);
/// ```
///
/// tonic has few paths: `RequestLayer::new(|uri, _| Some(uri.path()))`.
#[derive(Clone, Copy, Debug)]
pub struct RequestLayer {
    route: RouteOf,
}

impl RequestLayer {
    /// A layer that labels requests with the route that `route` returns.
    pub fn new(route: RouteOf) -> Self {
        Self { route }
    }
}

impl<S> Layer<S> for RequestLayer {
    type Service = ProfiledService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ProfiledService { inner, route: self.route }
    }
}

/// A service of [`RequestLayer`].
#[derive(Clone, Copy, Debug)]
pub struct ProfiledService<S> {
    inner: S,
    route: RouteOf,
}

impl<S, B, R> Service<Request<B>> for ProfiledService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<ProfiledBody<R>>;
    type Error = S::Error;
    type Future = ProfiledResponse<S::Future>;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(task)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let route = (self.route)(request.uri(), request.extensions());
        let (labels, open) = begin(request.method(), route, request.headers());
        let mut labels = PolledLabels::new(labels);
        let _scope = labels.enter();
        let future = Some(self.inner.call(request));
        ProfiledResponse { future, labels: Some(labels), awaits: Awaits::default(), is_polled: false, open }
    }
}

/// The labels of a request that begins now, and the report of its end.
fn begin(method: &Method, route: Option<&str>, headers: &HeaderMap) -> (Labels, Option<ServedRequest>) {
    let method = known_method(method);
    let outer = context_row(thread_context::current()).unwrap_or_default();
    let (own_span, caller) = (active_span(), caller_of(headers));
    let link = match own_span.is_empty() {
        true if outer.link.is_empty() => Link { trace_id: caller.trace_id, ..Link::default() },
        true => outer.link,
        false => Link::default(),
    };
    let around = if own_span.is_empty() { outer } else { ContextRow { link: own_span, ..outer } };
    let root = binding::begin_request(&around, caller);
    let endpoint = route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}"));
    if root.is_none() && route.is_some() {
        binding::name_request(&around, &endpoint);
    }
    let pairs = [("http.request.method", method), ("http.route", route.unwrap_or_default())];
    let labels = with_labels(ContextRow::default(), &pairs[..1 + usize::from(route.is_some())]);
    let row = ContextRow { link, ..labels };
    // The span that is active at each poll wins: a link of its own would replace it.
    let row = match root {
        Some(root) if own_span.is_empty() => in_request(row, root),
        Some(local_root_span_id) => ContextRow { local_root_span_id, ..row },
        None => row,
    };
    let open = root.map(|root| ServedRequest { root, begun: Instant::now(), endpoint, has_failed: false });
    (Labels(row), open)
}

/// The span of a layer around this one that enters it in polls only, as tonic's `trace_fn` does: its request is that of this one.
fn join_span(labels: Option<&mut PolledLabels>, open: &mut Option<ServedRequest>) {
    let (Some(labels), Some(request)) = (labels, &*open) else { return };
    let link = active_span();
    let local_root_span_id = local_root_of(link.span_id);
    if local_root_span_id == [0; 8] || local_root_span_id == request.root {
        return;
    }
    binding::name_request(&ContextRow { link, local_root_span_id, ..ContextRow::default() }, &request.endpoint);
    let label_set = labels.labels.0.label_set;
    *labels = PolledLabels::new(Labels(ContextRow { label_set, ..ContextRow::default() }));
    // Another one reports the request: its end has no effect.
    binding::forget_request(request.root);
    *open = None;
}

/// The method, or `_OTHER`: clients may send any word (OpenTelemetry semantic conventions for HTTP 1.23, `http.request.method`).
fn known_method(method: &Method) -> &str {
    match method.as_str() {
        known @ ("CONNECT" | "DELETE" | "GET" | "HEAD" | "OPTIONS" | "PATCH" | "POST" | "PUT" | "TRACE") => known,
        _ => "_OTHER",
    }
}

/// Trace and span of the header `traceparent` (W3C Trace Context, section 3.2); empty without a valid one.
fn caller_of(headers: &HeaderMap) -> Link {
    let text = headers.get("traceparent").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = text.split('-');
    let [version, trace_id, span_id, flags] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    if version.len() != 2 || flags.len() != 2 {
        return Link::default();
    }
    let caller = link_of_hex(trace_id, span_id);
    if caller.trace_id == [0; 16] || caller.span_id == [0; 8] {
        Link::default()
    } else {
        caller
    }
}

/// A request whose end is reported when this is dropped.
#[derive(Debug)]
struct ServedRequest {
    root: [u8; 8],
    begun: Instant,
    endpoint: String,
    has_failed: bool,
}

impl Drop for ServedRequest {
    fn drop(&mut self) {
        binding::end_request(&RequestEnd {
            trace_id: [0; 16],
            local_root_span_id: self.root,
            duration: self.begun.elapsed(),
            endpoint: &self.endpoint,
            is_error: self.has_failed || std::thread::panicking(),
        });
    }
}

pin_project_lite::pin_project! {
    /// The response of a [`ProfiledService`].
    pub struct ProfiledResponse<F> {
        // `None` during the destructor.
        #[pin]
        future: Option<F>,
        // The body of the response takes them.
        labels: Option<PolledLabels>,
        awaits: Awaits,
        is_polled: bool,
        open: Option<ServedRequest>,
    }

    impl<F> PinnedDrop for ProfiledResponse<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _scope = this.labels.as_mut().map(PolledLabels::enter);
            this.future.set(None);
        }
    }
}

impl<F, R, E> Future for ProfiledResponse<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ProfiledBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if !std::mem::replace(this.is_polled, true) {
            join_span(this.labels.as_mut(), this.open);
        }
        let _scope = this.labels.as_mut().map(PolledLabels::enter);
        let poll = |task: &mut Context<'_>| this.future.as_pin_mut().map_or(Poll::Pending, |future| future.poll(task));
        let outcome = ready!(this.awaits.poll(task, poll));
        let mut open = this.open.take();
        if let Some(open) = &mut open {
            open.has_failed = outcome.as_ref().map_or(true, |response| response.status().is_server_error());
        }
        let labels = this.labels.take();
        Poll::Ready(outcome.map(|response| response.map(|body| ProfiledBody { body: Some(body), labels, open })))
    }
}

pin_project_lite::pin_project! {
    /// The body of a response, which ends its request.
    pub struct ProfiledBody<B> {
        // `None` during the destructor.
        #[pin]
        body: Option<B>,
        labels: Option<PolledLabels>,
        open: Option<ServedRequest>,
    }

    impl<B> PinnedDrop for ProfiledBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _scope = this.labels.as_mut().map(PolledLabels::enter);
            this.body.set(None);
        }
    }
}

impl<B: Body> Body for ProfiledBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let _scope = this.labels.as_mut().map(PolledLabels::enter);
        let frame = ready!(this.body.as_pin_mut().map_or(Poll::Ready(None), |body| body.poll_frame(task)));
        if !matches!(frame, Some(Ok(_))) {
            if let Some(mut open) = this.open.take() {
                open.has_failed |= frame.is_some();
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_read_from_complete_headers_only() {
        let trace_and_span = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        let caller = |value: String| {
            caller_of(&HeaderMap::from_iter([("traceparent".parse().unwrap(), value.parse().unwrap())]))
        };
        for complete in [format!("00-{trace_and_span}-01"), format!("cc-{trace_and_span}-00-of-a-later-version")] {
            assert_eq!(caller(complete).span_id, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        }
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01".to_owned();
        for other in [trace_and_span.to_owned(), format!("00-{trace_and_span}"), format!("0-{trace_and_span}-1"), zero]
        {
            assert!(caller(other.clone()).is_empty(), "{other}");
        }
    }
}
