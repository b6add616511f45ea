//! The processed format of the Firefox Profiler (<https://profiler.firefox.com>), version 55: samples on a time axis. A lane (the
//! format's thread) has the samples of one type of one thread, and a marker for each span. Only samples with timestamps have a
//! place on the axis; others are counted and left out.
//!
//! The crate `fxprof-processed-profile` (0.8) writes whole numbers of 32 bits as weights and no file of a function, so it is the
//! reference of the tests and not the writer.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use serde_json::{json, Value};
use spanprof_profile::code_origin::CodeOrigin;
use spanprof_profile::transform::{call_paths, CallPaths};
use spanprof_profile::{
    kinds, AttributeSetId, AttributeValue, Link, Profile, ProfilesData, ResourceProfiles, Sample, StackId,
};

/// Version of the format; the page upgrades older versions.
const VERSION: u32 = 55;
/// Categories, in this order: name and color. A function has one category in all lanes, since the page draws a call gray whose frames
/// have several.
const CATEGORIES: [(&str, &str); 5] = [
    ("Other", "grey"),
    ("Own code", "orange"),
    ("Library", "lightblue"),
    ("Runtime", "darkgrey"),
    ("Profiler", "purple"),
];
/// Lanes that the page shows before the reader selects others: the maximum of its own choice.
const VISIBLE_LANES: usize = 15;
const OTHER: usize = 0;

/// Encodes all samples that have timestamps, and counts the others; `None` if there are none. `endpoint` names the span of a label
/// set, with the quality of the name: that of the highest one is used.
pub fn encode(
    data: &ProfilesData,
    product: &str,
    endpoint: impl Fn(AttributeSetId) -> Option<(u8, String)>,
) -> Option<(Value, usize)> {
    let mut lanes: BTreeMap<LaneKey, Lane> = BTreeMap::new();
    let mut spans: BTreeMap<ThreadKey, BTreeMap<Link, SpanTimes>> = BTreeMap::new();
    let mut left_out = 0;
    let mut interval_ns = None;
    for (process, resource) in data.resources.iter().enumerate() {
        // Ended requests have no place among the samples of a thread.
        for profile in resource.profiles.iter().filter(|profile| !kinds::REQUESTS.has(profile.type_name())) {
            if profile.type_name() == "cpu" && profile.period_type.unit == "nanoseconds" && profile.period > 0 {
                interval_ns.get_or_insert(profile.period);
            }
            for sample in &profile.samples {
                if sample.timestamps_unix_nano.is_empty() {
                    left_out += 1;
                    continue;
                }
                let thread = ThreadKey::of(data, process, sample);
                let link = data.dictionary.get_link(sample.link);
                if !link.is_empty() {
                    let times = spans.entry(thread.clone()).or_default().entry(link).or_default();
                    times.add(sample);
                    let name = endpoint(sample.attributes);
                    if name.as_ref().map(|(quality, _)| *quality) > times.name.as_ref().map(|(quality, _)| *quality) {
                        times.name = name;
                    }
                }
                let type_name = profile.type_name().to_owned();
                let key = LaneKey { thread, rank: rank(&type_name), type_name };
                lanes.entry(key).or_insert_with(|| Lane::of(profile)).add(profile, sample);
            }
        }
    }
    let start_ns = lanes.values().flat_map(|lane| lane.samples.iter().map(|sample| sample.time_ns)).min()?;
    let paths = call_paths(data);
    let parents = parents(&paths);
    let mut marked: Option<&ThreadKey> = None;
    let mut threads = Vec::new();
    for (key, lane) in &mut lanes {
        // The markers of a thread are in its first lane.
        let spans = spans.get(&key.thread).filter(|_| marked != Some(&key.thread));
        marked = Some(&key.thread);
        lane.samples.sort_by_key(|sample| sample.time_ns);
        let process = data.resources.get(key.thread.process);
        threads.push(thread(key, threads.len(), process, lane, spans, start_ns, &paths, &parents));
    }
    let meta = metadata(product, start_ns, interval_ns.unwrap_or(1_000_000), &lanes);
    let profile = json!({
        "meta": meta, "libs": [], "pages": [], "profilerOverhead": [], "counters": [], "threads": threads,
    });
    Some((profile, left_out))
}

/// A thread of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ThreadKey {
    /// Index of the resource.
    process: usize,
    name: String,
    id: String,
}

impl ThreadKey {
    fn of(data: &ProfilesData, process: usize, sample: &Sample) -> Self {
        let label = |key: &str| {
            let labels = data.dictionary.attributes_of(sample.attributes);
            labels.filter(|label| label.key == key).map(|label| label.value.to_string()).next().unwrap_or_default()
        };
        Self { process, name: label("thread.name"), id: label("thread.id") }
    }

    fn shown(&self) -> String {
        match (self.name.as_str(), self.id.as_str()) {
            ("", "") => "all threads".to_owned(),
            ("", id) => format!("thread {id}"),
            (name, _) => name.to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LaneKey {
    thread: ThreadKey,
    rank: usize,
    type_name: String,
}

/// Place of a type among the lanes of a thread: CPU time first.
fn rank(type_name: &str) -> usize {
    kinds::ALL.iter().flat_map(|kind| kind.types).take_while(|of_kind| of_kind.name != type_name).count()
}

/// The samples of a lane.
struct Lane {
    unit: String,
    samples: Vec<TimedSample>,
}

struct TimedSample {
    time_ns: u64,
    stack: StackId,
    /// In the unit of the lane.
    weight: i64,
}

impl Lane {
    fn of(profile: &Profile) -> Self {
        Self { unit: profile.unit().to_owned(), samples: Vec::new() }
    }

    /// Distributes the weight of a sample to its timestamps, by their values. The sum is exact.
    fn add(&mut self, profile: &Profile, sample: &Sample) {
        let (weight, total) = (i128::from(profile.weight(sample)), i128::from(sample.total()));
        let mut before = 0i128;
        let mut given = 0i128;
        for (nth, time_ns) in sample.timestamps_unix_nano.iter().enumerate() {
            before +=
                i128::from(if sample.values.is_empty() { 1 } else { sample.values.get(nth).copied().unwrap_or(0) });
            let until = if total == 0 { 0 } else { weight * before / total };
            let part = i64::try_from(until - given).unwrap_or(0);
            given = until;
            self.samples.push(TimedSample { time_ns: *time_ns, stack: sample.stack, weight: part });
        }
    }
}

/// The first and the last sample of a span.
#[derive(Default)]
struct SpanTimes {
    range_ns: Option<(u64, u64)>,
    /// The best name so far, and its quality.
    name: Option<(u8, String)>,
}

impl SpanTimes {
    fn add(&mut self, sample: &Sample) {
        for &time in &sample.timestamps_unix_nano {
            let (first, last) = self.range_ns.unwrap_or((time, time));
            self.range_ns = Some((first.min(time), last.max(time)));
        }
    }
}

/// Nanoseconds as milliseconds.
fn milliseconds(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Without selected lanes the page compares CPU time with numbers of samples of other types: it selects allocations, and hides
/// lanes with few samples. So the busiest lanes are named.
fn metadata(product: &str, start_ns: u64, interval_ns: i64, lanes: &BTreeMap<LaneKey, Lane>) -> Value {
    let weight = |lane: &Lane| lane.samples.iter().map(|sample| i128::from(sample.weight)).sum::<i128>();
    let mut order: Vec<_> = lanes.iter().enumerate().map(|(nth, (key, lane))| (key.rank, -weight(lane), nth)).collect();
    order.sort_unstable();
    let visible: Vec<usize> = order.into_iter().take(VISIBLE_LANES).map(|(_, _, nth)| nth).collect();
    let categories = CATEGORIES.map(|(name, color)| json!({"name": name, "color": color, "subcategories": ["Other"]}));
    let field =
        |key: &str, label: &str| json!({"key": key, "label": label, "format": "unique-string", "searchable": true});
    json!({
        "categories": categories,
        "debug": false,
        "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
        "interval": milliseconds(interval_ns),
        "preprocessedProfileVersion": VERSION,
        "processType": 0,
        "product": product,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs"},
        "startTime": milliseconds(start_ns as i64),
        "symbolicated": true,
        "pausedRanges": [],
        "version": 24,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "markerSchema": [{
            "name": "Span",
            "display": ["marker-chart", "marker-table", "timeline-overview"],
            "chartLabel": "{marker.name}",
            "tooltipLabel": "{marker.name}",
            "tableLabel": "{marker.data.trace} {marker.data.span}",
            "description": "From the first to the last sample of a span in this thread.",
            "fields": [field("trace", "Trace id"), field("span", "Span id")],
        }],
        "initialVisibleThreads": visible,
        "initialSelectedThreads": visible[..1],
        "keepProfileThreadOrder": true,
    })
}

/// Distinct values in the order of their first use.
struct DistinctRows<T> {
    values: Vec<T>,
    index: HashMap<T, usize>,
}

impl<T: Clone + Eq + Hash> DistinctRows<T> {
    fn new() -> Self {
        Self { values: Vec::new(), index: HashMap::new() }
    }

    fn row(&mut self, value: T) -> usize {
        *self.index.entry(value).or_insert_with_key(|value| {
            self.values.push(value.clone());
            self.values.len() - 1
        })
    }
}

/// One lane. One frame for each function: lines of calls are merged, as in the other formats of stack trees.
#[expect(clippy::too_many_arguments, reason = "the parts of one object")]
fn thread(
    key: &LaneKey,
    nth: usize,
    process: Option<&ResourceProfiles>,
    lane: &Lane,
    spans: Option<&BTreeMap<Link, SpanTimes>>,
    start_ns: u64,
    paths: &CallPaths,
    parents: &[u32],
) -> Value {
    let (mut strings, mut functions) = (DistinctRows::new(), DistinctRows::new());
    let mut stacks: DistinctRows<(Option<usize>, usize)> = DistinctRows::new();
    let mut row_of_stack = |stack: &StackId| {
        let node = paths.of_stack.get(stack).copied().filter(|node| *node != 0);
        let path: Vec<u32> =
            std::iter::successors(node, |node| Some(parents[*node as usize]).filter(|parent| *parent != 0)).collect();
        let call = |prefix, node: &u32| Some(stacks.row((prefix, functions.row(paths.nodes[*node as usize].1))));
        path.iter().rev().fold(None, call)
    };
    let stack_column: Vec<_> = lane.samples.iter().map(|sample| row_of_stack(&sample.stack)).collect();
    let (weight_type, is_time) = match lane.unit.as_str() {
        "nanoseconds" => ("tracing-ms", true),
        "bytes" => ("bytes", false),
        _ => ("samples", false),
    };
    let times = std::iter::once(start_ns).chain(lane.samples.iter().map(|sample| sample.time_ns));
    let weight = |sample: &TimedSample| if is_time { json!(milliseconds(sample.weight)) } else { json!(sample.weight) };
    let mut samples = json!({
        "length": lane.samples.len(),
        "weightType": weight_type,
        "stack": stack_column,
        "timeDeltas": times.zip(&lane.samples).map(|(last_ns, sample)| milliseconds((sample.time_ns - last_ns) as i64)).collect::<Vec<_>>(),
        "weight": lane.samples.iter().map(weight).collect::<Vec<_>>(),
    });
    if key.type_name == "cpu" && is_time {
        samples["threadCPUDelta"] = lane.samples.iter().map(|sample| sample.weight / 1000).collect();
    }
    let rows: Vec<_> = functions.values.iter().filter_map(|function| paths.functions.get(*function as usize)).collect();
    let count = rows.len();
    let same = |value: Value| vec![value; count];
    let names: Vec<_> = rows.iter().map(|row| strings.row(row.name.clone())).collect();
    let files: Vec<_> = rows.iter().map(|row| (!row.file.is_empty()).then(|| strings.row(row.file.clone()))).collect();
    let category = |origin| match origin {
        CodeOrigin::Unknown => OTHER,
        CodeOrigin::Own => 1,
        CodeOrigin::Library => 2,
        CodeOrigin::Runtime => 3,
        CodeOrigin::Profiler => 4,
    };
    let markers: Vec<_> =
        spans.into_iter().flatten().filter_map(|(link, span)| Some((link, span, span.range_ns?))).collect();
    let marker_names: Vec<_> = markers
        .iter()
        .map(|(_, span, _)| strings.row(span.name.as_ref().map_or("span", |(_, name)| name).to_owned()))
        .collect();
    let mut ids = |link: &Link| {
        json!({
            "type": "Span", "trace": strings.row(hex::encode(link.trace_id)), "span": strings.row(hex::encode(link.span_id)),
        })
    };
    let marker_ids: Vec<_> = markers.iter().map(|(link, _, _)| ids(link)).collect();
    let since_start = |time_ns: u64| milliseconds(time_ns.saturating_sub(start_ns) as i64);
    let attribute = |key: &str| {
        let attributes = process.into_iter().flat_map(|process| &process.resource);
        attributes.filter(|attribute| attribute.key == key).map(|attribute| &attribute.value).next()
    };
    let service = process.map_or("", ResourceProfiles::service_name);
    json!({
        "name": format!("{} ({})", key.thread.shown(), key.type_name),
        "processName": if service.is_empty() { "unnamed service" } else { service },
        "pid": match attribute("process.pid") {
            Some(AttributeValue::Int(pid)) => pid.to_string(),
            Some(AttributeValue::String(pid)) => pid.clone(),
            _ => key.thread.process.to_string(),
        },
        // The ids of lanes differ, also those of one thread.
        "tid": if key.thread.id.is_empty() { nth.to_string() } else { format!("{}.{nth}", key.thread.id) },
        "isMainThread": false,
        "processType": "default",
        "pausedRanges": [],
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "unregisterTime": null,
        "showMarkersInTimeline": true,
        "samples": samples,
        "funcTable": {
            "length": count,
            "name": names,
            "isJS": same(json!(false)),
            "relevantForJS": same(json!(false)),
            "resource": same(json!(-1)),
            "fileName": files,
            "lineNumber": rows.iter().map(|row| (row.start_line > 0).then_some(row.start_line)).collect::<Vec<_>>(),
            "columnNumber": same(Value::Null),
        },
        "frameTable": {
            "length": count,
            "address": same(json!(-1)),
            "inlineDepth": same(json!(0)),
            "category": rows.iter().map(|row| category(row.origin())).collect::<Vec<_>>(),
            "subcategory": same(json!(0)),
            "func": (0..count).collect::<Vec<_>>(),
            "nativeSymbol": same(Value::Null),
            "innerWindowID": same(json!(0)),
            "line": same(Value::Null),
            "column": same(Value::Null),
        },
        "stackTable": {
            "length": stacks.values.len(),
            "prefix": stacks.values.iter().map(|(prefix, _)| *prefix).collect::<Vec<_>>(),
            "frame": stacks.values.iter().map(|(_, frame)| *frame).collect::<Vec<_>>(),
        },
        "markers": {
            "length": markers.len(),
            "category": vec![OTHER; markers.len()],
            // An interval.
            "phase": vec![1; markers.len()],
            "name": marker_names,
            "startTime": markers.iter().map(|(_, _, (first, _))| since_start(*first)).collect::<Vec<_>>(),
            "endTime": markers.iter().map(|(_, _, (_, last))| since_start(*last)).collect::<Vec<_>>(),
            "data": marker_ids,
        },
        "nativeSymbols": {"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []},
        "resourceTable": {"length": 0, "lib": [], "name": [], "host": [], "type": []},
        "stringArray": strings.values,
    })
}

/// The caller of each node, by the levels of the nodes.
fn parents(paths: &CallPaths) -> Vec<u32> {
    let mut parents = Vec::with_capacity(paths.nodes.len());
    // The last node of each level.
    let mut last: Vec<u32> = Vec::new();
    for (node, (level, _)) in paths.nodes.iter().enumerate() {
        let level = *level as usize;
        parents.push(level.checked_sub(1).and_then(|above| last.get(above).copied()).unwrap_or(0));
        last.truncate(level);
        last.push(node as u32);
    }
    parents
}
