//! A small shop on axum, profiled by spanprof. The profiler needs the start, the allocator for the heap profile, and a layer
//! for requests. OTEL_* variables select the destination.

use std::alloc::System;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;

use axum::extract::{MatchedPath, Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{json, Map, Value};
use spanprof::tower::RequestLayer;
use spanprof::{Config, Profiler, StatValue};
use tokio::signal::unix::{signal, SignalKind};

// The heap profile needs this allocator; without it, there is none.
#[global_allocator]
static ALLOCATOR: spanprof::alloc::Profiled<System> = spanprof::alloc::Profiled::new(System);

/// In the heap profile as objects in use.
static CATALOGUE: LazyLock<Vec<Value>> = LazyLock::new(|| (0..40_000).map(article).collect());

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let profiler = Profiler::start(Config::builder().load()?)?;
    LazyLock::force(&CATALOGUE);
    let app = Router::new()
        .route("/cart/{size}", get(cart))
        .route("/report", get(report))
        // Samples of a request carry its route, on each thread that polls its future; requests are counted with their duration.
        .route_layer(RequestLayer::new(|_uri, extensions| extensions.get::<MatchedPath>().map(MatchedPath::as_str)))
        .route("/health", get(|| async { "ok" }))
        .route("/profiler", get(statistics))
        .with_state(profiler.clone());
    // A container sets HOST to 0.0.0.0.
    let host = std::env::var("HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let listener = tokio::net::TcpListener::bind((host, 8000)).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    axum::serve(listener, app).with_graceful_shutdown(async move { _ = terminate.recv().await }).await?;
    // The end of `main` alone loses the last window.
    profiler.stop();
    Ok(())
}

async fn cart(Path(size): Path<usize>) -> Json<Value> {
    let customer = if size > 10 { "returning" } else { "new" };
    Json(json!({"total": spanprof::tag_wrapper([("customer", customer)], || price_cart(size))}))
}

/// Works on a thread for blocking code; `bind` carries the labels there.
async fn report(Query(parameters): Query<HashMap<String, u64>>) -> Json<Value> {
    let rows = parameters.get("rows").copied().unwrap_or(1000);
    let digest = tokio::task::spawn_blocking(spanprof::bind(move || render_report(rows))).await;
    Json(json!({"digest": digest.unwrap_or_default()}))
}

/// Statistics of the profiler.
async fn statistics(State(profiler): State<Profiler>) -> Json<Map<String, Value>> {
    let values = profiler.stats().entries.into_iter().map(|(name, value)| match value {
        StatValue::Count(count) => (name, count.into()),
        StatValue::Text(text) => (name, text.into()),
    });
    Json(values.collect())
}

fn article(number: usize) -> Value {
    json!({"name": format!("article {number}"), "price": number * 17 % 90 + 1})
}

fn price_cart(size: usize) -> u64 {
    let articles = (0..size * 20).map(|number| &CATALOGUE[number * 7919 % CATALOGUE.len()]);
    articles.map(|article| article["price"].as_u64().unwrap_or_default() + article.to_string().len() as u64 % 2).sum()
}

fn render_report(rows: u64) -> String {
    let mut digest = DefaultHasher::new();
    for row in 0..rows {
        let squares: Vec<u64> = (0..20).map(|number| row * number).collect();
        digest.write(json!({"row": row, "squares": squares}).to_string().as_bytes());
    }
    format!("{:016x}", digest.finish())
}
