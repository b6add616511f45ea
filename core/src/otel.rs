//! OpenTelemetry span processor: names the profile of each local root span, and reports its end, for counts of
//! requests and errors and for tail-based retention. Samples are linked to the active span without it (`tag`).

use opentelemetry::trace::{Span as _, SpanId, SpanKind, Status, TraceContextExt};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData};
use opentelemetry_sdk::Resource;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use spanprof_aggregate::context::{context_row, ContextRow, Link};
use spanprof_aggregate::hash::WordMap;
use spanprof_os::{thread_context, PerProcess};
use spanprof_profiler::{binding, ProfilerHandle, RootSpanEnd};

/// Attribute of a local root span that identifies its profile: its own span id.
const PROFILE_ID: &str = "pyroscope.profile.id";
/// Attribute with the keys of the profiles that are on.
const PROFILE_TYPE: &str = "profile.type";

/// Open spans that are remembered; with more, their samples belong to no request until spans end.
const MAX_SPANS: usize = 65_536;
/// The local root of each open span. OpenTelemetry's context has the active span only.
static ROOTS: PerProcess<Mutex<WordMap<[u8; 8], [u8; 8]>>> = PerProcess::empty();
/// Whether a processor has seen a span.
static HAS_SPANS: AtomicBool = AtomicBool::new(false);

fn with_roots<R>(body: impl FnOnce(&mut WordMap<[u8; 8], [u8; 8]>) -> R) -> R {
    ROOTS.with(|roots| body(&mut roots.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// The local root of an open span; all zeros if no processor has seen it.
pub(crate) fn local_root_of(span_id: [u8; 8]) -> [u8; 8] {
    if !HAS_SPANS.load(Ordering::Relaxed) || span_id == [0; 8] {
        return [0; 8];
    }
    with_roots(|roots| roots.get(&span_id).copied().unwrap_or_default())
}

fn remember(span_id: [u8; 8], local_root_span_id: [u8; 8]) {
    HAS_SPANS.store(true, Ordering::Relaxed);
    with_roots(|roots| {
        if roots.len() < MAX_SPANS && local_root_span_id != [0; 8] {
            roots.insert(span_id, local_root_span_id);
        }
    });
}

/// Sets `pyroscope.profile.id` and `profile.type` on every local root span, and reports its duration and its status. It may
/// be added before the profiler starts. The profiles adopt the resource of the provider, except what is configured.
///
/// ```
/// let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder()
///     .with_span_processor(spanprof::SpanProcessor::default())
///     .build();
/// # drop(provider);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanProcessor;

impl opentelemetry_sdk::trace::SpanProcessor for SpanProcessor {
    fn on_start(&self, span: &mut Span, parent: &Context) {
        let is_local_root = {
            let parent = parent.span();
            !parent.span_context().is_valid() || parent.span_context().is_remote()
        };
        let (trace_id, span_id) = (span.span_context().trace_id(), span.span_context().span_id());
        if !is_local_root {
            let root = local_root_of(parent.span().span_context().span_id().to_bytes());
            remember(span_id.to_bytes(), root);
            // Its kind is not readable before its end; a span that is no client span is left out there.
            let row = ContextRow { local_root_span_id: root, ..ContextRow::default() };
            binding::begin_client_span(&row, span_id.to_bytes());
            return;
        }
        // The request of a layer, if the span begins inside of it.
        let row = context_row(thread_context::current()).unwrap_or_default();
        let request = row.local_root_span_id;
        remember(span_id.to_bytes(), if request == [0; 8] { span_id.to_bytes() } else { request });
        binding::begin_root_span(&row, Link { trace_id: trace_id.to_bytes(), span_id: span_id.to_bytes() });
        span.set_attribute(KeyValue::new(PROFILE_ID, span_id.to_string()));
        let types = ProfilerHandle::running().map(|profiler| profiler.profile_types()).unwrap_or_default();
        let types: Vec<StringValue> = types.into_iter().map(StringValue::from).collect();
        if !types.is_empty() {
            span.set_attribute(KeyValue::new(PROFILE_TYPE, Value::Array(Array::String(types))));
        }
    }

    fn on_end(&self, span: SpanData) {
        with_roots(|roots| roots.remove(&span.span_context.span_id().to_bytes()));
        // 0 after a change of the clock.
        let duration = span.end_time.duration_since(span.start_time).unwrap_or_default();
        let is_call = matches!(span.span_kind, SpanKind::Client | SpanKind::Producer);
        // A call without a parent is no request.
        if is_call || span.parent_span_id != SpanId::INVALID && !span.parent_span_is_remote {
            let name = if is_call { &*span.name } else { "" };
            binding::end_client_span(span.span_context.span_id().to_bytes(), name, duration);
            return;
        }
        let attribute = |keys: &[&str]| {
            let found = span.attributes.iter().find(|attribute| keys.contains(&attribute.key.as_str()));
            found.map(|attribute| attribute.value.to_string()).unwrap_or_default()
        };
        binding::end_root_span(&RootSpanEnd {
            trace_id: span.span_context.trace_id().to_bytes(),
            span_id: span.span_context.span_id().to_bytes(),
            duration,
            name: &span.name,
            method: &attribute(&["http.request.method", "http.method"]),
            route: &attribute(&["http.route"]),
            is_error: matches!(span.status, Status::Error { .. }),
        });
    }

    fn set_resource(&mut self, resource: &Resource) {
        binding::adopt_resource(resource.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect());
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::labels::tag_wrapper;
    use opentelemetry::trace::{SpanContext, TraceFlags, TraceId, TraceState, Tracer, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use spanprof_config::{Config, ConfigPatch, ConfigValue, SampleRetention, TailDuration};
    use std::sync::{Arc, Mutex};

    /// Keeps the ended spans.
    #[derive(Clone, Debug, Default)]
    struct EndedSpans(Arc<Mutex<Vec<SpanData>>>);

    impl opentelemetry_sdk::trace::SpanProcessor for EndedSpans {
        fn on_start(&self, _: &mut Span, _: &Context) {}

        fn on_end(&self, span: SpanData) {
            self.0.lock().unwrap().push(span);
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }
    }

    impl EndedSpans {
        fn attribute(&self, span: &str, key: &str) -> Option<Value> {
            let spans = self.0.lock().unwrap();
            let span = spans.iter().find(|ended| ended.name == span).unwrap();
            span.attributes
                .iter()
                .find(|attribute| attribute.key.as_str() == key)
                .map(|attribute| attribute.value.clone())
        }

        fn id(&self, span: &str) -> String {
            let spans = self.0.lock().unwrap();
            spans.iter().find(|ended| ended.name == span).unwrap().span_context.span_id().to_string()
        }
    }

    #[test]
    fn local_root_spans_name_their_profile_and_report_their_end() {
        let ended = EndedSpans::default();
        let provider =
            SdkTracerProvider::builder().with_span_processor(SpanProcessor).with_span_processor(ended.clone()).build();
        let tracer = provider.tracer("test");
        tracer.in_span("before", |_| {});

        let _serial = spanprof_os::testing::one_at_a_time();
        let profiler = crate::api::profiler::start_native(retaining_errors()).unwrap();
        tracer.in_span("cart", |root| {
            let root = root.span().span_context().span_id().to_bytes();
            tracer.in_span("query", |context| {
                tag_wrapper([("table", "items")], || {
                    assert_eq!(context_row(thread_context::current()).unwrap().local_root_span_id, root);
                });
                context.span().set_status(Status::error("of a child"));
            });
        });
        let remote = SpanContext::new(
            TraceId::from_bytes([1; 16]),
            SpanId::from_bytes([2; 8]),
            TraceFlags::SAMPLED,
            true,
            TraceState::NONE,
        );
        let remote = Context::new().with_remote_span_context(remote);
        let mut failed = tracer.start_with_context("failed", &remote);
        failed.set_status(Status::error("refused"));
        failed.end();
        tracer.span_builder("call of a job").with_kind(SpanKind::Client).start(&tracer).end();

        let on = |span: &str| ended.attribute(span, PROFILE_TYPE);
        assert_eq!(on("cart"), Some(Value::Array(Array::String(vec!["cpu".into()]))));
        assert_eq!(ended.attribute("cart", PROFILE_ID), Some(ended.id("cart").into()));
        assert_eq!(ended.attribute("failed", PROFILE_ID), Some(ended.id("failed").into()));
        assert_eq!((on("query"), ended.attribute("query", PROFILE_ID)), (None, None));
        assert_eq!((on("before"), ended.attribute("before", PROFILE_ID)), (None, Some(ended.id("before").into())));

        assert!(profiler.flush(Duration::from_secs(30)));
        let stats = profiler.stats();
        // The two local root spans, of which one has the status of an error.
        assert_eq!((stats.counter("tail.requests"), stats.counter("tail.kept_error")), (2, 1));
        profiler.update(&ConfigPatch(vec![("cpu".to_owned(), ConfigValue::Bool(false))])).unwrap();
        tracer.in_span("without CPU samples", |_| {});
        assert_eq!(on("without CPU samples"), None);
        profiler.stop();
    }

    fn retaining_errors() -> Config {
        Config {
            destinations: Some(Vec::new()),
            heap: false,
            off_cpu: false,
            retention: SampleRetention::Tail,
            tail_duration: TailDuration::Ignored,
            ..Config::default()
        }
    }

    /// A service whose requests have a span each.
    #[cfg(feature = "tower")]
    struct Traced(opentelemetry_sdk::trace::SdkTracer);

    #[cfg(feature = "tower")]
    impl tower_service::Service<http::Request<()>> for Traced {
        type Response = http::Response<String>;
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<()>) -> Self::Future {
            self.0.in_span("cart", |context| context.span().set_status(Status::error("refused")));
            std::future::ready(Ok(http::Response::new(String::new())))
        }
    }

    #[cfg(feature = "tower")]
    #[test]
    fn a_request_with_a_layer_and_a_processor_is_reported_once() {
        use tower_layer::Layer;
        use tower_service::Service;
        let _serial = spanprof_os::testing::one_at_a_time();
        let provider = SdkTracerProvider::builder().with_span_processor(SpanProcessor).build();
        let tracer = provider.tracer("shop");
        let profiler = crate::api::profiler::start_native(retaining_errors()).unwrap();
        let mut shop = crate::tower::RequestLayer::new(|uri, _| Some(uri.path())).layer(Traced(tracer.clone()));
        let mut call = || {
            let mut response = std::pin::pin!(shop.call(http::Request::new(())));
            let mut task = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(std::future::Future::poll(response.as_mut(), &mut task).is_ready());
        };
        let reported = || {
            assert!(profiler.flush(Duration::from_secs(30)));
            let stats = profiler.stats();
            (stats.counter("tail.requests"), stats.counter("tail.kept_error"))
        };
        call();
        assert_eq!(reported(), (1, 1), "the layer reports, with the error of the span");
        tracer.in_span("around", |_| call());
        assert_eq!(reported(), (2, 1), "the processor reports");
        profiler.stop();
    }
}
