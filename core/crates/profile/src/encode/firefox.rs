//! The processed format of the Firefox Profiler (<https://profiler.firefox.com>), version 55: samples on a time axis. A lane (the
//! format's thread) has the samples of one type of one thread, and a marker for each span. Only samples with timestamps have a
//! place on the axis; others are counted and left out.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use super::flamegraph::{write_numbers, write_text};
use crate::code_origin::CodeOrigin;
use crate::transform::{call_paths, CallPaths};
use crate::{kinds, AttributeSetId, AttributeValue, Link, Profile, ProfilesData, ResourceProfiles, Sample};

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
const OTHER: i64 = 0;

/// The file, and the samples that are not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirefoxProfile {
    /// The text of the file.
    pub json: String,
    /// Samples without timestamps, which have no place on a time axis.
    pub left_out: usize,
}

/// Encodes all samples that have timestamps; `None` if there are none. `endpoint` names the span of a label set, with the quality of
/// the name: that of the highest one is used.
pub fn encode(
    data: &ProfilesData,
    product: &str,
    endpoint: impl Fn(AttributeSetId) -> Option<(u8, String)>,
) -> Option<FirefoxProfile> {
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
    let mut json = String::from("{\"meta\":");
    write_meta(&mut json, product, start_ns, interval_ns.unwrap_or(1_000_000));
    write_selection(&mut json, &lanes);
    json.push_str(r#","libs":[],"pages":[],"profilerOverhead":[],"counters":[],"threads":["#);
    let mut marked: Option<&ThreadKey> = None;
    for (nth, (key, lane)) in lanes.iter_mut().enumerate() {
        if nth > 0 {
            json.push(',');
        }
        // The markers of a thread are in its first lane.
        let spans = spans.get(&key.thread).filter(|_| marked != Some(&key.thread));
        marked = Some(&key.thread);
        lane.samples.sort_by_key(|sample| sample.time_ns);
        let process = data.resources.get(key.thread.process);
        LaneWriter { paths: &paths, parents: &parents, start_ns, key, nth, process }.write(&mut json, lane, spans);
    }
    json.push_str("]}\n");
    Some(FirefoxProfile { json, left_out })
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
    stack: crate::StackId,
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

fn write_meta(out: &mut String, product: &str, start_ns: u64, interval_ns: i64) {
    out.push_str("{\"categories\":[");
    for (nth, (name, color)) in CATEGORIES.iter().enumerate() {
        let comma = if nth > 0 { "," } else { "" };
        let _ = write!(out, r#"{comma}{{"name":"{name}","color":"{color}","subcategories":["Other"]}}"#);
    }
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        r#"],"debug":false,"extensions":{{"length":0,"baseURL":[],"id":[],"name":[]}},"interval":{},"preprocessedProfileVersion":{VERSION},"processType":0,"product":"#,
        Milliseconds(interval_ns.unsigned_abs())
    );
    write_text(out, product);
    let _ = write!(
        out,
        r#","sampleUnits":{{"time":"ms","eventDelay":"ms","threadCPUDelta":"µs"}},"startTime":{},"symbolicated":true,"pausedRanges":[],"version":24,"usesOnlyOneStackType":true,"sourceCodeIsNotOnSearchfox":true,"markerSchema":["#,
        Milliseconds(start_ns)
    );
    out.push_str(concat!(
        r#"{"name":"Span","display":["marker-chart","marker-table","timeline-overview"],"chartLabel":"{marker.name}","#,
        r#""tooltipLabel":"{marker.name}","tableLabel":"{marker.data.trace} {marker.data.span}","#,
        r#""description":"From the first to the last sample of a span in this thread.","#,
        r#""fields":[{"key":"trace","label":"Trace id","format":"unique-string","searchable":true},"#,
        r#"{"key":"span","label":"Span id","format":"unique-string","searchable":true}]}]"#
    ));
}

/// Ends the metadata with the lanes that the page shows, the busiest first, and the selected one. Without them it compares CPU time
/// with numbers of samples of other types: it selects allocations, and hides lanes with few samples.
fn write_selection(out: &mut String, lanes: &BTreeMap<LaneKey, Lane>) {
    let weight = |lane: &Lane| lane.samples.iter().map(|sample| i128::from(sample.weight)).sum::<i128>();
    let mut order: Vec<_> =
        lanes.iter().enumerate().map(|(nth, (key, lane))| (key.rank, -weight(lane), nth as i64)).collect();
    order.sort_unstable();
    let visible = order.iter().take(VISIBLE_LANES).map(|(_, _, nth)| *nth);
    write_numbers(out, "initialVisibleThreads", visible.clone());
    write_numbers(out, "initialSelectedThreads", visible.take(1));
    out.push_str(r#","keepProfileThreadOrder":true}"#);
}

/// Nanoseconds as a number of milliseconds with all digits.
struct Milliseconds(u64);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        match rest {
            0 => write!(out, "{whole}"),
            rest => write!(out, "{whole}.{}", format!("{rest:06}").trim_end_matches('0')),
        }
    }
}

/// The tables of a lane.
#[derive(Default)]
struct LaneTables {
    strings: Vec<String>,
    string_index: HashMap<String, i64>,
    /// Functions by their index in the call paths.
    functions: HashMap<u32, i64>,
    function_order: Vec<u32>,
    /// Stacks by their node in the call paths: prefix (-1 for none) and function.
    stacks: HashMap<u32, i64>,
    stack_rows: Vec<(i64, i64)>,
}

impl LaneTables {
    fn string(&mut self, text: &str) -> i64 {
        if let Some(index) = self.string_index.get(text) {
            return *index;
        }
        let index = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.string_index.insert(text.to_owned(), index);
        index
    }

    /// The row of a node; -1 for the root, a stack without frames.
    fn stack(&mut self, node: u32, parents: &[u32], paths: &CallPaths) -> i64 {
        let mut missing = Vec::new();
        let mut at = node;
        while at != 0 && !self.stacks.contains_key(&at) {
            missing.push(at);
            at = parents[at as usize];
        }
        let mut row = self.stacks.get(&at).copied().unwrap_or(-1);
        for node in missing.into_iter().rev() {
            let (_, function) = paths.nodes[node as usize];
            let next = self.function_order.len() as i64;
            let frame = *self.functions.entry(function).or_insert(next);
            if frame == next {
                self.function_order.push(function);
            }
            self.stack_rows.push((row, frame));
            row = self.stack_rows.len() as i64 - 1;
            self.stacks.insert(node, row);
        }
        row
    }
}

struct LaneWriter<'a> {
    paths: &'a CallPaths,
    /// The caller of each node.
    parents: &'a [u32],
    start_ns: u64,
    key: &'a LaneKey,
    /// Index of the lane.
    nth: usize,
    process: Option<&'a ResourceProfiles>,
}

impl LaneWriter<'_> {
    fn write(&self, out: &mut String, lane: &Lane, spans: Option<&BTreeMap<Link, SpanTimes>>) {
        let mut tables = LaneTables::default();
        let stacks: Vec<i64> = lane
            .samples
            .iter()
            .map(|sample| {
                let node = self.paths.of_stack.get(&sample.stack).copied().unwrap_or(0);
                tables.stack(node, self.parents, self.paths)
            })
            .collect();
        out.push('{');
        self.write_identity(out);
        self.write_samples(out, lane, &stacks);
        self.write_functions(out, &mut tables);
        write_stacks(out, &tables.stack_rows);
        self.write_markers(out, &mut tables, spans);
        out.push_str(r#","nativeSymbols":{"length":0,"address":[],"functionSize":[],"libIndex":[],"name":[]}"#);
        out.push_str(r#","resourceTable":{"length":0,"lib":[],"name":[],"host":[],"type":[]},"stringArray":["#);
        for (nth, text) in tables.strings.iter().enumerate() {
            if nth > 0 {
                out.push(',');
            }
            write_text(out, text);
        }
        out.push_str("]}");
    }

    fn write_identity(&self, out: &mut String) {
        let attribute = |key: &str| {
            let attributes = self.process.into_iter().flat_map(|process| &process.resource);
            attributes.filter(|attribute| attribute.key == key).map(|attribute| &attribute.value).next()
        };
        let service = self.process.map_or("", ResourceProfiles::service_name);
        let pid = match attribute("process.pid") {
            Some(AttributeValue::Int(pid)) => pid.to_string(),
            Some(AttributeValue::String(pid)) => pid.clone(),
            _ => self.key.thread.process.to_string(),
        };
        out.push_str("\"name\":");
        write_text(out, &format!("{} ({})", self.key.thread.shown(), self.key.type_name));
        out.push_str(",\"processName\":");
        write_text(out, if service.is_empty() { "unnamed service" } else { service });
        out.push_str(",\"pid\":");
        write_text(out, &pid);
        // The ids of lanes differ, also those of one thread.
        let tid = match self.key.thread.id.as_str() {
            "" => self.nth.to_string(),
            id => format!("{id}.{}", self.nth),
        };
        out.push_str(",\"tid\":");
        write_text(out, &tid);
        out.push_str(concat!(
            r#","isMainThread":false,"processType":"default","pausedRanges":[],"processStartupTime":0,"#,
            r#""processShutdownTime":null,"registerTime":0,"unregisterTime":null,"showMarkersInTimeline":true"#
        ));
    }

    fn write_samples(&self, out: &mut String, lane: &Lane, stacks: &[i64]) {
        let (weight_type, is_time) = match lane.unit.as_str() {
            "nanoseconds" => ("tracing-ms", true),
            "bytes" => ("bytes", false),
            _ => ("samples", false),
        };
        let _ = write!(out, r#","samples":{{"length":{},"weightType":"{weight_type}","stack":["#, stacks.len());
        write_optional(out, stacks.iter().copied());
        out.push_str("],\"timeDeltas\":[");
        let mut last_ns = self.start_ns;
        for (nth, sample) in lane.samples.iter().enumerate() {
            let comma = if nth > 0 { "," } else { "" };
            let _ = write!(out, "{comma}{}", Milliseconds(sample.time_ns - last_ns));
            last_ns = sample.time_ns;
        }
        out.push_str("],\"weight\":[");
        for (nth, sample) in lane.samples.iter().enumerate() {
            let (comma, sign) = (if nth > 0 { "," } else { "" }, if sample.weight < 0 { "-" } else { "" });
            let _ = match is_time {
                true => write!(out, "{comma}{sign}{}", Milliseconds(sample.weight.unsigned_abs())),
                false => write!(out, "{comma}{}", sample.weight),
            };
        }
        out.push(']');
        if self.key.type_name == "cpu" && is_time {
            write_numbers(out, "threadCPUDelta", lane.samples.iter().map(|sample| sample.weight / 1000));
        }
        out.push('}');
    }

    /// One frame for each function: lines of calls are merged, as in the other formats of stack trees.
    fn write_functions(&self, out: &mut String, tables: &mut LaneTables) {
        let order = std::mem::take(&mut tables.function_order);
        let rows: Vec<_> = order.iter().filter_map(|function| self.paths.functions.get(*function as usize)).collect();
        let names: Vec<i64> = rows.iter().map(|row| tables.string(&row.name)).collect();
        let files: Vec<i64> =
            rows.iter().map(|row| if row.file.is_empty() { -1 } else { tables.string(&row.file) }).collect();
        let lines = || rows.iter().map(|row| if row.start_line > 0 { row.start_line } else { -1 });
        let count = rows.len();
        let same = |value: i64| std::iter::repeat_n(value, count);
        let categories = rows.iter().map(|row| match row.origin() {
            CodeOrigin::Unknown => OTHER,
            CodeOrigin::Own => 1,
            CodeOrigin::Library => 2,
            CodeOrigin::Runtime => 3,
            CodeOrigin::Profiler => 4,
        });
        let _ = write!(out, r#","funcTable":{{"length":{count}"#);
        write_numbers(out, "name", names.iter().copied());
        let flags = vec!["false"; count].join(",");
        let _ = write!(out, r#","isJS":[{flags}],"relevantForJS":[{flags}]"#);
        write_numbers(out, "resource", same(-1));
        write_column(out, "fileName", files.iter().copied());
        write_column(out, "lineNumber", lines());
        write_column(out, "columnNumber", same(-1));
        let _ = write!(out, r#"}},"frameTable":{{"length":{count}"#);
        write_numbers(out, "address", same(-1));
        write_numbers(out, "inlineDepth", same(0));
        write_numbers(out, "category", categories);
        write_numbers(out, "subcategory", same(0));
        write_numbers(out, "func", 0..count as i64);
        write_column(out, "nativeSymbol", same(-1));
        write_numbers(out, "innerWindowID", same(0));
        write_column(out, "line", same(-1));
        write_column(out, "column", same(-1));
        out.push('}');
    }

    fn write_markers(&self, out: &mut String, tables: &mut LaneTables, spans: Option<&BTreeMap<Link, SpanTimes>>) {
        const INTERVAL: i64 = 1;
        let rows: Vec<_> =
            spans.into_iter().flatten().filter_map(|(link, span)| Some((link, span, span.range_ns?))).collect();
        let _ = write!(out, r#","markers":{{"length":{}"#, rows.len());
        write_numbers(out, "category", rows.iter().map(|_| OTHER));
        write_numbers(out, "phase", rows.iter().map(|_| INTERVAL));
        let names: Vec<i64> = rows
            .iter()
            .map(|(_, span, _)| tables.string(span.name.as_ref().map_or("span", |(_, name)| name)))
            .collect();
        write_numbers(out, "name", names.into_iter());
        for (member, is_end) in [("startTime", false), ("endTime", true)] {
            let _ = write!(out, ",\"{member}\":[");
            for (nth, (_, _, (first, last))) in rows.iter().enumerate() {
                let time = if is_end { last } else { first };
                let comma = if nth > 0 { "," } else { "" };
                let _ = write!(out, "{comma}{}", Milliseconds(time.saturating_sub(self.start_ns)));
            }
            out.push(']');
        }
        out.push_str(",\"data\":[");
        for (nth, (link, _, _)) in rows.iter().enumerate() {
            let trace = tables.string(&hex::encode(link.trace_id));
            let span = tables.string(&hex::encode(link.span_id));
            let comma = if nth > 0 { "," } else { "" };
            let _ = write!(out, r#"{comma}{{"type":"Span","trace":{trace},"span":{span}}}"#);
        }
        out.push_str("]}");
    }
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

fn write_stacks(out: &mut String, rows: &[(i64, i64)]) {
    let _ = write!(out, r#","stackTable":{{"length":{}"#, rows.len());
    write_column(out, "prefix", rows.iter().map(|(prefix, _)| *prefix));
    write_numbers(out, "frame", rows.iter().map(|(_, frame)| *frame));
    out.push('}');
}

/// A member with a list of numbers, in which a negative one is null.
fn write_column(out: &mut String, name: &str, numbers: impl Iterator<Item = i64>) {
    let _ = write!(out, ",\"{name}\":[");
    write_optional(out, numbers);
    out.push(']');
}

fn write_optional(out: &mut String, numbers: impl Iterator<Item = i64>) {
    for (nth, number) in numbers.enumerate() {
        let comma = if nth > 0 { "," } else { "" };
        let _ = match number {
            0.. => write!(out, "{comma}{number}"),
            _ => write!(out, "{comma}null"),
        };
    }
}
