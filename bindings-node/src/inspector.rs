//! The runtime for a Node.js whose stacks cannot be walked: profiles of the inspector's own sampler, taken by
//! `lib/inspector.js`, become samples of the core. Called by the addon's API.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;
use spanprof::runtime::{capture_nothing, Frame, FrameType, Runtime};
use spanprof::Profiler;
use spanprof_signal::{CaptureFn, Context, RawFrame, RawSample, SampleFlags, SampleKind};

/// Maximum number of functions; further ones share one name.
const MAX_FUNCTIONS: usize = 65_536;
/// Maximum number of frames per stack.
const MAX_DEPTH: usize = 512;
/// Marks a frame's code word: above every address, below the synthetic frames of the walk.
const INSPECTOR_CODE: u64 = 1 << 61;

/// See the module documentation.
#[derive(Default)]
pub struct InspectorRuntime {
    functions: Mutex<InspectorFunctions>,
}

#[derive(Default)]
struct InspectorFunctions {
    list: Vec<Frame>,
    numbers: HashMap<Frame, u64>,
}

impl InspectorFunctions {
    fn number(&mut self, frame: Frame) -> u64 {
        if let Some(number) = self.numbers.get(&frame) {
            return *number;
        }
        if self.list.len() >= MAX_FUNCTIONS {
            return 0;
        }
        let number = self.list.len() as u64;
        self.list.push(frame.clone());
        self.numbers.insert(frame, number);
        number
    }
}

impl InspectorRuntime {
    /// The instance of this process.
    pub fn get() -> Arc<Self> {
        static RUNTIME: OnceLock<Arc<InspectorRuntime>> = OnceLock::new();
        let other = || Frame { function: "(other functions)".into(), ..Frame::default() };
        let runtime = RUNTIME.get_or_init(|| {
            let runtime = Arc::new(Self::default());
            runtime.lock().number(other());
            runtime
        });
        runtime.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, InspectorFunctions> {
        self.functions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a profile (`Profiler.Profile` of the inspector, as JSON); returns its number of samples.
    pub fn take(&self, profile: &str) -> usize {
        let Some(profiler) = Profiler::running() else { return 0 };
        let Ok(profile) = serde_json::from_str::<Value>(profile) else { return 0 };
        let weights = weights(&profile);
        let stacks = self.stacks(&profile);
        let time_ns = spanprof::sys::monotonic_ns();
        let mut taken = 0;
        for (node, (samples, nanoseconds)) in weights {
            let Some(frames) = stacks.get(&node) else { continue };
            taken += samples as usize;
            // The core counts a drop when the ring is full.
            let _ = profiler.submit(&RawSample {
                kind: SampleKind::Cpu,
                flags: SampleFlags(0),
                thread_id: std::process::id(),
                time_ns,
                values: [nanoseconds, samples],
                key: 0,
                context: Context::None,
                frames,
            });
        }
        taken
    }

    /// Stacks by node, leaf first; without idle nodes.
    fn stacks(&self, profile: &Value) -> HashMap<u64, Vec<RawFrame>> {
        let nodes: HashMap<u64, &Value> = list(&profile["nodes"]).map(|node| (number(&node["id"]), node)).collect();
        let children_of = |node: &Value| list(&node["children"]).map(number).collect::<Vec<_>>();
        let parents: HashMap<u64, u64> =
            nodes.iter().flat_map(|(id, node)| children_of(node).into_iter().map(|child| (child, *id))).collect();
        let mut functions = self.lock();
        let raw: HashMap<u64, Option<RawFrame>> = nodes
            .iter()
            .map(|(id, node)| {
                let raw = frame_of(&node["callFrame"])
                    .map(|frame| RawFrame { code: INSPECTOR_CODE | functions.number(frame), at: 0 });
                (*id, raw)
            })
            .collect();
        drop(functions);
        let mut stacks = HashMap::new();
        for (id, node) in &nodes {
            if name_of(&node["callFrame"]) == "(idle)" {
                continue;
            }
            let path = std::iter::successors(Some(*id), |node| parents.get(node).copied()).take(MAX_DEPTH);
            stacks.insert(*id, path.filter_map(|node| raw.get(&node).copied().flatten()).collect());
        }
        stacks
    }
}

/// Samples and nanoseconds by node.
fn weights(profile: &Value) -> HashMap<u64, (u64, u64)> {
    let mut weights: HashMap<u64, (u64, u64)> = HashMap::new();
    for (node, delta) in list(&profile["samples"]).zip(list(&profile["timeDeltas"])) {
        let weight = weights.entry(number(node)).or_default();
        // Deltas may be negative when the sampler's clock steps back.
        *weight = (weight.0 + 1, weight.1 + delta.as_i64().unwrap_or(0).max(0) as u64 * 1000);
    }
    weights
}

fn frame_of(call: &Value) -> Option<Frame> {
    let name = name_of(call);
    let file = call["url"].as_str().unwrap_or_default();
    let line = (call["lineNumber"].as_i64().unwrap_or(-1) + 1).max(0) as u32;
    let function = match name {
        "(root)" => return None,
        "" => "(anonymous)",
        name => name,
    };
    let frame_type = if file.is_empty() { FrameType::Native } else { FrameType::V8js };
    Some(Frame { function: function.into(), file: file.into(), start_line: line, line, column: 0, frame_type })
}

fn name_of(call: &Value) -> &str {
    call["functionName"].as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

impl Runtime for InspectorRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        crate::runtime::resource_attributes()
    }

    fn capture(&self) -> CaptureFn {
        capture_nothing
    }

    fn resolve(&self, frame: RawFrame, _position: u64, out: &mut Vec<Frame>) {
        out.extend(self.lock().list.get((frame.code & !INSPECTOR_CODE) as usize).cloned());
    }

    fn stats(&self, out: &mut Vec<(&'static str, String)>) {
        out.push(("node.stack_walk", "inspector".to_owned()));
        out.push(("node.functions", self.lock().list.len().to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Value {
        serde_json::json!({
            "nodes": [
                {"id": 1, "callFrame": {"functionName": "(root)", "url": "", "lineNumber": -1}, "children": [2, 4]},
                {"id": 2, "callFrame": {"functionName": "", "url": "file:///a.js", "lineNumber": 0}, "children": [3]},
                {"id": 3, "callFrame": {"functionName": "burn", "url": "file:///a.js", "lineNumber": 6}},
                {"id": 4, "callFrame": {"functionName": "(idle)", "url": "", "lineNumber": -1}}
            ],
            "samples": [3, 3, 4, 2], "timeDeltas": [1000, 500, 9000, -3]
        })
    }

    #[test]
    fn a_profile_becomes_stacks_with_the_time_between_its_samples() {
        let weights = weights(&profile());
        assert_eq!((weights[&3], weights[&2]), ((2, 1_500_000), (1, 0)));
        let runtime = InspectorRuntime::default();
        let stacks = runtime.stacks(&profile());
        let names = |node: u64| {
            let mut frames = Vec::new();
            stacks[&node].iter().for_each(|raw| runtime.resolve(*raw, 0, &mut frames));
            frames.iter().map(|frame| (frame.function.to_string(), frame.start_line)).collect::<Vec<_>>()
        };
        assert_eq!(names(3), [("burn".to_owned(), 7), ("(anonymous)".to_owned(), 1)]);
        assert!(!stacks.contains_key(&4), "idle time is not CPU time");
    }
}
