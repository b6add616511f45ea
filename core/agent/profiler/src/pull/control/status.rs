//! The status as JSON: state, configuration with sources, statistics. Contains no secret: `stats()` masks them.

use serde_json::{json, Map, Value};

use crate::report::health;
use crate::session::Session;
use spanprof_aggregate::StatValue;

pub(crate) fn status(session: &Session) -> Value {
    let mut stats = Map::new();
    let mut config = Map::new();
    let effective = session.config.requested.load();
    let entries = health::stats(Some(session), &effective).entries;
    let text = |name: &str| match entries.iter().find(|(key, _)| key == name) {
        Some((_, StatValue::Text(text))) => text.clone(),
        _ => String::new(),
    };
    for (name, value) in &entries {
        let value = match value {
            StatValue::Count(count) => json!(count),
            StatValue::Text(text) => json!(text),
        };
        match name.strip_prefix("config.") {
            Some(key) if !key.contains('.') => {
                config.insert(key.to_owned(), json!({ "value": value, "source": text(&format!("{name}.source")) }));
            }
            Some(_) => {}
            None => {
                stats.insert(name.clone(), value);
            }
        }
    }
    config.remove("warnings");
    let burst = session.burst_end_ns().map(|end_ns| {
        let left_ns = end_ns.saturating_sub(spanprof_os::monotonic_ns());
        json!({ "seconds_left": left_ns.div_ceil(1_000_000_000) })
    });
    json!({
        "state": text("state"),
        "enabled": effective.enabled,
        "burst": burst,
        "config": config,
        "stats": stats,
    })
}
