//! A service of axum with tracing-opentelemetry: its spans are requests of their route, with the resource of the SDK.

use std::time::Duration;

use axum::body::{to_bytes, Body};
use axum::extract::{MatchedPath, Request};
use axum::middleware::{from_fn, Next};
use axum::routing::get;
use opentelemetry::trace::TracerProvider;
use opentelemetry::KeyValue;
use opentelemetry_sdk::{trace::SdkTracerProvider, Resource};
use spanprof::tower::RequestLayer;
use spanprof_config::Config;
use spanprof_read::query::{SpanGrouping, SpanTotals};
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;

use super::profiler::{burn, one_at_a_time, start_native, with_receiver, Receiver200, TIMEOUT};

async fn cart() -> String {
    let query = || burn(Duration::from_millis(150));
    tracing::info_span!("query").in_scope(|| spanprof::tag_wrapper([("table", "items")], query)).to_string()
}

#[test]
fn a_request_of_axum_with_child_spans_is_one_row_named_by_its_route_with_the_sdks_resource() {
    let _serial = one_at_a_time();
    let receiver = Receiver200::start();
    let profiler = start_native(Config { heap: false, ..with_receiver(&receiver) }).unwrap();
    let attribute = KeyValue::new("deployment.environment.name", "of the SDK");
    let provider = SdkTracerProvider::builder()
        .with_span_processor(spanprof::SpanProcessor)
        .with_resource(Resource::builder_empty().with_attribute(attribute).build())
        .build();
    let tracer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry().with(tracer));
    let spans = |request: Request, next: Next| next.run(request).instrument(tracing::info_span!("request"));
    let layer = RequestLayer::new(|_, extensions| extensions.get::<MatchedPath>().map(MatchedPath::as_str));
    let mut shop = axum::Router::new().route("/cart/{size}", get(cart)).route_layer(layer).layer(from_fn(spans));
    // As tonic does: the span is entered in polls only, after the layer has begun the request.
    let shop_of_tonic =
        RequestLayer::new(|_, _| Some("/cart/{size}")).layer(axum::Router::new().route("/cart/{size}", get(cart)));
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        for size in 0..2 {
            let request = Request::get(format!("/cart/{size}")).body(Body::empty()).unwrap();
            to_bytes(shop.call(request).await.unwrap().into_body(), 1024).await.unwrap();
        }
        let request = Request::get("/cart/2").body(Body::empty()).unwrap();
        let response = shop_of_tonic.clone().call(request).instrument(tracing::info_span!("request"));
        drop(response.await.unwrap());
    });
    assert!(profiler.flush(TIMEOUT));
    let data = receiver.next(TIMEOUT).unwrap();
    profiler.stop();

    let of_sdk =
        |key: &str| data.resources[0].resource.iter().find(|it| it.key == key).map(|it| it.value.as_ref().to_string());
    assert_eq!(of_sdk("deployment.environment.name").as_deref(), Some("of the SDK"));
    let mut totals = SpanTotals::new(None);
    totals.add(&data);
    let table = totals.table(SpanGrouping::Span, |row| row.weight("cpu"));
    let rows = table.rows.iter().filter(|row| row.link.span_id != [0; 8]);
    let rows: Vec<_> = rows.map(|row| (row.endpoint.as_str(), row.weight("cpu") / 1_000_000)).collect();
    let is_request = |(endpoint, cpu): &(&str, i64)| *endpoint == "GET /cart/{size}" && (120..200).contains(cpu);
    assert!(rows.len() == 3 && rows.iter().all(is_request), "{rows:?}");
}
