//! The rule on the wait of one request.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use spanprof_profile::code_origin::WaitReason;
use spanprof_profile::{Link, ProfilesData};

use super::{EstimatedShare, Fact, Finding, Rule, LISTED};
use crate::query::{FunctionLine, Granularity, SpanGrouping, SpanRow, SpanTotals, TimeCategory};

/// A slow request takes at least this time, nanoseconds: its waits have 12 samples at the default rate of 25 Hz. Shorter outliers are
/// found in healthy services.
const SLOW_NS: i64 = 1_000_000_000;
/// It takes at least this many times the median of its endpoint.
const SLOW_RATIO: i64 = 2;
/// Types of waits of one request.
const WAITS: [&str; 2] = ["off_cpu", "awaited"];

/// The requests of all services, and the lines in which they waited, by type of [`WAITS`].
#[derive(Debug)]
pub(super) struct RequestWaits {
    requests: SpanTotals,
    lines: [SpanTotals; 2],
}

impl Default for RequestWaits {
    fn default() -> Self {
        let lines = WAITS.map(|name| SpanTotals::with_functions(None, name, Granularity::Line));
        Self { requests: SpanTotals::with_categories(None), lines }
    }
}

impl RequestWaits {
    pub fn add(&mut self, data: &ProfilesData) {
        self.requests.add(data);
        self.lines.iter_mut().for_each(|lines| lines.add(data));
    }

    /// The slowest requests of endpoints, if they are slow and waited for most of their time: of each service those that waited longest.
    /// The cost is the nanoseconds of the wait.
    pub fn slow_requests(&self) -> Vec<Finding> {
        let mut slow = self.requests.table(SpanGrouping::Endpoint, |_| 0).rows;
        slow.retain(|row| {
            let is_slow = |([p50, _], (took, _)): ([i64; 2], (i64, Link))| took >= SLOW_NS && took / SLOW_RATIO >= p50;
            !row.endpoint.is_empty() && row.durations.zip(row.slowest).is_some_and(is_slow)
        });
        if slow.is_empty() {
            return Vec::new();
        }
        let spans = self.requests.table(SpanGrouping::Span, |_| 0).rows;
        let spans: HashMap<Link, &SpanRow> = spans.iter().map(|row| (row.link, row)).collect();
        let mut of_services: BTreeMap<&str, Vec<Finding>> = BTreeMap::new();
        for row in &slow {
            of_services.entry(&row.service).or_default().extend(self.slow_request(row, &spans));
        }
        for findings in of_services.values_mut() {
            findings.sort_by(|one, other| other.cost.total_cmp(&one.cost));
            findings.truncate(LISTED);
        }
        of_services.into_values().flatten().collect()
    }

    fn slow_request(&self, endpoint: &SpanRow, spans: &HashMap<Link, &SpanRow>) -> Option<Finding> {
        let ([p50, _], (took, link)) = endpoint.durations.zip(endpoint.slowest)?;
        let request = spans.get(&link)?;
        let [off_cpu, awaited] = WAITS.map(|name| request.weight(name));
        // The threads of most requests wait in the calls that they await, several of which may overlap.
        let at = usize::from(off_cpu <= awaited / 2);
        let (mut place, mut waited) =
            self.lines[at].main_line(link).map_or((None, 0), |(at, ns)| (Some(at), ns.min(took)));
        let mut reason = (at == 1).then_some("awaited call");
        if at == 0 {
            let heaviest = request.categories.get(WAITS[0])?.iter().max_by_key(|(_, total)| total.weight);
            // A request that could run waits for the machine.
            let category = heaviest.map(|(category, _)| *category);
            if category == Some(TimeCategory::Wait(WaitReason::NoProcessor)) {
                return None;
            }
            reason = category.filter(|category| !category.is_unknown()).map(TimeCategory::name);
        }
        let mut type_name = WAITS[at];
        if waited < took / 2 && self.requests.awaits(&endpoint.service) {
            (waited, place, reason, type_name) = (took - request.weight("cpu"), None, Some("awaited"), "");
        }
        if waited < took / 2 {
            return None;
        }
        let text = |name, text: &str| (name, Fact::Text(text.to_owned()));
        let quantity = |name, ns| (name, Fact::Quantity(ns, "nanoseconds"));
        let mut facts = vec![
            text("endpoint", &endpoint.endpoint),
            quantity("took", took),
            quantity("waited", waited),
            quantity("p50", p50),
            text("reason", reason.unwrap_or_default()),
            text("trace_id", &hex::encode(link.trace_id)),
            text("span_id", &hex::encode(link.span_id)),
        ];
        facts.extend(place.filter(|place| place.line > 0).map(|place| ("line", Fact::Line(place.line))));
        Some(Finding {
            rule: Rule::SlowRequest,
            service: endpoint.service.clone(),
            type_name,
            function: place.map(|place| FunctionLine { line: 0, ..place.clone() }),
            share: EstimatedShare::exact(waited as f64 / took as f64),
            cost: waited as f64,
            samples: request.types.get(type_name).map_or(0.0, |total| total.samples),
            facts,
        })
    }
}
