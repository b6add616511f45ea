//! Decoders of the profiles of the Chrome DevTools Protocol, which are JSON: `.cpuprofile` (`Profiler.Profile`) and
//! `.heapprofile` (`HeapProfiler.SamplingHeapProfile`). A CPU profile has the type `wall`: it has the thread's whole time, as
//! `(idle)` too. Its times are those of a monotonic clock, so that the profile has a duration and no date. A heap profile has the
//! objects in use at its end.

use hashbrown::HashMap;
use serde::Deserialize;

use super::{json_bound, DecodeError, DecodeLimits};
use spanprof_profile::*;

const WHAT_CPU: &str = ".cpuprofile";
const WHAT_HEAP: &str = ".heapprofile";
/// Both formats name a function in this member.
const CALL_FRAME: &[u8] = b"\"callFrame\"";
const SELF_SIZE: &[u8] = b"\"selfSize\"";
/// The first call frame is near the start, except after long lists of samples.
const INSPECTED_BYTES: usize = 1 << 20;
/// Frames of a stack in a heap profile, whose tree is nested; engines record 128. Bounds the recursion of the parser.
const MAX_NESTED_FRAMES: usize = 256;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CpuProfile {
    nodes: Vec<CpuNode>,
    start_time: f64,
    end_time: f64,
    #[serde(default)]
    samples: Vec<u64>,
    #[serde(default)]
    time_deltas: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CpuNode {
    id: u64,
    call_frame: DevToolsFrame,
    #[serde(default)]
    hit_count: u64,
    #[serde(default)]
    children: Vec<u64>,
    /// In the form of older versions.
    parent: Option<u64>,
    #[serde(default)]
    position_ticks: Vec<PositionTick>,
}

#[derive(Deserialize)]
struct PositionTick {
    line: i64,
    ticks: u64,
}

#[derive(Deserialize)]
struct HeapProfile {
    head: HeapNode,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeapNode {
    call_frame: DevToolsFrame,
    #[serde(default)]
    self_size: f64,
    #[serde(default)]
    children: Vec<HeapNode>,
}

#[derive(Deserialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
struct DevToolsFrame {
    #[serde(default)]
    function_name: String,
    #[serde(default)]
    url: String,
    /// From 0; -1 for none.
    #[serde(default = "no_line")]
    line_number: i64,
}

impl DevToolsFrame {
    fn is_root(&self) -> bool {
        self.function_name == "(root)" && self.url.is_empty()
    }
}

/// Frames of all stacks together.
fn max_frames(limits: &DecodeLimits) -> usize {
    limits.memory_bytes / 2 / std::mem::size_of::<LocationId>()
}

fn no_line() -> i64 {
    -1
}

/// Whether JSON is a profile of DevTools: `Some(true)` for a heap profile.
pub(super) fn is_heap_profile(body: &[u8]) -> Option<bool> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let head = &body[..body.len().min(INSPECTED_BYTES)];
    let is_member = |end: usize| head[end..].trim_ascii_start().first() == Some(&b':');
    let position = |name: &[u8]| head.windows(name.len()).position(|text| text == name);
    position(CALL_FRAME).filter(|start| is_member(start + CALL_FRAME.len()))?;
    Some(position(SELF_SIZE).is_some_and(|start| is_member(start + SELF_SIZE.len())))
}

pub(super) fn check_size(body: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
    match json_bound::memory_bytes(body) > limits.memory_bytes {
        true => {
            let expected = format!("JSON of at most {} bytes in memory", limits.memory_bytes);
            Err(DecodeError { what: "profile of DevTools", at: String::new(), expected, got: "more".to_owned() })
        }
        false => Ok(()),
    }
}

pub(super) fn decode_cpu(body: &[u8], limits: &DecodeLimits) -> Result<ProfilesData, DecodeError> {
    check_size(body, limits)?;
    let error = |at: String, expected: String, got: String| DecodeError { what: WHAT_CPU, at, expected, got };
    let profile: CpuProfile = serde_json::from_slice(body)
        .map_err(|failure| error(String::new(), "nodes, startTime and endTime".to_owned(), failure.to_string()))?;
    let mut index_of = HashMap::with_capacity(profile.nodes.len());
    for (nth, node) in profile.nodes.iter().enumerate() {
        if index_of.insert(node.id, nth).is_some() {
            return Err(error(format!("nodes[{nth}].id"), "a unique id".to_owned(), node.id.to_string()));
        }
    }
    let index = |id: u64, at: &dyn Fn() -> String| {
        index_of.get(&id).copied().ok_or_else(|| error(at(), "the id of a node".to_owned(), id.to_string()))
    };
    let mut parents: Vec<Option<usize>> = vec![None; profile.nodes.len()];
    for (nth, node) in profile.nodes.iter().enumerate() {
        if let Some(parent) = node.parent {
            parents[nth] = Some(index(parent, &|| format!("nodes[{nth}].parent"))?);
        }
        for child in &node.children {
            parents[index(*child, &|| format!("nodes[{nth}].children"))?] = Some(nth);
        }
    }
    let mut weights_us = vec![0.0; profile.nodes.len()];
    for (nth, (id, weight)) in sample_weights(&profile).into_iter().enumerate() {
        weights_us[index(id, &|| format!("samples[{nth}]"))?] += weight;
    }
    let mut tables = ProfileTables::default();
    let locations: Vec<LocationId> = profile.nodes.iter().map(|node| tables.location(&node.call_frame, 0)).collect();
    let mut samples = StackSums::default();
    let mut frames = 0;
    for (nth, node) in profile.nodes.iter().enumerate().filter(|(nth, _)| weights_us[*nth] > 0.0) {
        let mut callers = Vec::new();
        let mut at = parents[nth];
        while let Some(parent) = at {
            callers.push(parent);
            if callers.len() > limits.stack_depth.min(profile.nodes.len()) {
                let expected = format!("at most {} callers, without a cycle", limits.stack_depth);
                return Err(error(format!("nodes[{nth}]"), expected, "more".to_owned()));
            }
            at = parents[parent];
        }
        // A frame of no function.
        callers.pop_if(|root| profile.nodes[*root].call_frame.is_root());
        if node.call_frame.is_root() {
            continue;
        }
        let callers: Vec<LocationId> = callers.iter().map(|caller| locations[*caller]).collect();
        frames += (callers.len() + 1) * node.position_ticks.len().max(1);
        if frames > max_frames(limits) {
            let expected = format!("stacks of at most {} frames in total", max_frames(limits));
            return Err(error(format!("nodes[{nth}]"), expected, "more".to_owned()));
        }
        for (line, weight_ns) in by_line(node, (weights_us[nth] * 1e3).round() as i64) {
            let stack = [&[tables.location(&node.call_frame, line)], &callers[..]].concat();
            samples.add(tables.dictionary.stack(&stack), weight_ns);
        }
    }
    let profile = Profile {
        sample_type: ValueType::new("wall", "nanoseconds"),
        duration_nano: ((profile.end_time - profile.start_time).max(0.0) * 1e3) as u64,
        samples: samples.samples,
        ..Profile::default()
    };
    Ok(tables.data(profile))
}

/// The node of each sample with its time: that until the next sample, in microseconds. Without times, hits count equally.
fn sample_weights(profile: &CpuProfile) -> Vec<(u64, f64)> {
    let length = profile.end_time - profile.start_time;
    if profile.time_deltas.is_empty() {
        let hits: u64 = profile.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.hit_count));
        let of_hit = length.max(0.0) / hits.max(1) as f64;
        return profile.nodes.iter().map(|node| (node.id, node.hit_count as f64 * of_hit)).collect();
    }
    let mut time = profile.start_time;
    let mut timed: Vec<(f64, u64)> = profile
        .samples
        .iter()
        .zip(&profile.time_deltas)
        .map(|(id, delta)| {
            time += delta;
            (time, *id)
        })
        .collect();
    // Samples of other threads may be written late.
    timed.sort_by(|left, right| left.0.total_cmp(&right.0));
    let ends = timed.iter().skip(1).map(|(time, _)| *time).chain([profile.end_time]);
    let weights: Vec<f64> = timed.iter().zip(ends).map(|((start, _), end)| (end - start).max(0.0)).collect();
    timed.iter().zip(weights).map(|((_, id), weight)| (*id, weight)).collect()
}

/// The time of a node by its lines, in proportion to their ticks. The sum is the whole.
fn by_line(node: &CpuNode, whole_ns: i64) -> Vec<(i64, i64)> {
    let ticks: Vec<_> = node.position_ticks.iter().filter(|tick| tick.ticks > 0).collect();
    let all: f64 = ticks.iter().map(|tick| tick.ticks as f64).sum();
    let Some((last, others)) = ticks.split_last() else { return vec![(0, whole_ns)] };
    let mut rest = whole_ns;
    let mut lines = Vec::with_capacity(ticks.len());
    for tick in others {
        let part = ((whole_ns as f64 * tick.ticks as f64 / all) as i64).min(rest);
        rest -= part;
        lines.push((tick.line, part));
    }
    lines.push((last.line, rest));
    lines
}

pub(super) fn decode_heap(body: &[u8], limits: &DecodeLimits) -> Result<ProfilesData, DecodeError> {
    check_size(body, limits)?;
    let error = |expected: String, got: String| DecodeError { what: WHAT_HEAP, at: String::new(), expected, got };
    // A node is an object in a list.
    let deepest = 2 * MAX_NESTED_FRAMES;
    if json_bound::nesting(body) > deepest {
        return Err(error(format!("stacks of at most {MAX_NESTED_FRAMES} frames"), "deeper ones".to_owned()));
    }
    let mut parser = serde_json::Deserializer::from_slice(body);
    // Bounded above.
    parser.disable_recursion_limit();
    let profile = HeapProfile::deserialize(&mut parser)
        .and_then(|profile| parser.end().map(|()| profile))
        .map_err(|failure| error("a tree of call frames with selfSize".to_owned(), failure.to_string()))?;
    let mut tables = ProfileTables::default();
    let mut samples = StackSums::default();
    // Root first; the head itself is a frame of no function.
    let mut pending: Vec<(&HeapNode, usize)> = profile.head.children.iter().map(|node| (node, 0)).collect();
    let mut path: Vec<LocationId> = Vec::new();
    let mut frames = 0;
    while let Some((node, depth)) = pending.pop() {
        path.truncate(depth);
        path.push(tables.location(&node.call_frame, 0));
        if node.self_size >= 1.0 {
            let leaf_first: Vec<_> = path.iter().rev().copied().collect();
            samples.add(tables.dictionary.stack(&leaf_first), node.self_size as i64);
            frames += path.len();
        }
        if frames > max_frames(limits) {
            return Err(error(format!("stacks of at most {} frames in total", max_frames(limits)), "more".to_owned()));
        }
        pending.extend(node.children.iter().map(|child| (child, depth + 1)));
    }
    if profile.head.self_size >= 1.0 {
        let root = tables.location(&profile.head.call_frame, 0);
        samples.add(tables.dictionary.stack(&[root]), profile.head.self_size as i64);
    }
    let sample_type = ValueType::new("inuse_space", "bytes");
    Ok(tables.data(Profile { sample_type, samples: samples.samples, ..Profile::default() }))
}

/// The samples of distinct stacks, in the order of their first occurrence.
#[derive(Default)]
struct StackSums {
    samples: Vec<Sample>,
    index_of: HashMap<StackId, usize>,
}

impl StackSums {
    fn add(&mut self, stack: StackId, weight: i64) {
        if weight == 0 {
            return;
        }
        let nth = *self.index_of.entry(stack).or_insert(self.samples.len());
        match self.samples.get_mut(nth) {
            Some(sample) => sample.values[0] = sample.values[0].saturating_add(weight),
            None => self.samples.push(Sample { stack, values: vec![weight], ..Sample::default() }),
        }
    }
}

#[derive(Default)]
struct ProfileTables {
    dictionary: Dictionary,
}

impl ProfileTables {
    fn location(&mut self, frame: &DevToolsFrame, line: i64) -> LocationId {
        let function_name = if frame.function_name.is_empty() { "(anonymous)" } else { &frame.function_name };
        let name = self.dictionary.string(function_name);
        let filename = self.dictionary.string(&path_of(&frame.url));
        let start_line = frame.line_number.saturating_add(1).max(0);
        let start_line = if frame.url.is_empty() { 0 } else { start_line };
        let function = self.dictionary.function(Function { name, filename, start_line, ..Function::default() });
        let attributes = self.dictionary.frame_type(FrameType::V8js);
        let line = Line { function, line: line.max(0), ..Line::default() };
        self.dictionary.location(Location { lines: &[line], attributes, ..Location::default() })
    }

    fn data(self, profile: Profile) -> ProfilesData {
        let resource = ResourceProfiles { resource: Vec::new(), scope: Scope::default(), profiles: vec![profile] };
        ProfilesData { dictionary: self.dictionary, resources: vec![resource] }
    }
}

/// The path of a `file://` URL; other URLs and names as they are.
fn path_of(url: &str) -> String {
    let Some(path) = url.strip_prefix("file://") else { return url.to_owned() };
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let value = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        decoded.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
#[path = "devtools_tests.rs"]
mod tests;
