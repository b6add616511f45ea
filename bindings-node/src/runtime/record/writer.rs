//! Functions that record stacks for the tests in `replay_tests` (feature `record-stacks`): request a recording, and return it as
//! a fixture. Called by `xtask/live/node/record_stacks.js`. Not here: the walk that is recorded (`capture::recording`).

use std::collections::BTreeMap;

use napi::{Env, Error, Result};
use napi_derive::napi;
use spanprof_recorded_stack::{RecordedFrame, RecordedStack};
use spanprof_signal::RawFrame;

use super::recorded_shape::{LeafCode, V8StackShape};
use super::replay::{self, RecordedV8Walk};
use crate::runtime::capture::recording::{self, RECORDER, REGISTER_NAMES, TABLE_NAMES};
use crate::runtime::code::code_map::{CodeMap, OF_PROCESS};
use crate::runtime::code::code_object::CodeKind;
use crate::runtime::code::event_queue;
use crate::runtime::code::synthetic_names;
use crate::runtime::walk::frameless::frameless_return;
use crate::runtime::walk::js_thread::{self, EmbeddedBuiltins, JsThread};

/// A recorded walk.
#[napi(object)]
pub struct Recording {
    /// The content of the fixture file.
    pub fixture: String,
    /// Whether the stack has the requested shape, and its words alone lead to its frames.
    pub is_as_requested: bool,
}

/// Requests a recording of the next walk of this thread.
#[napi]
pub fn request_recording() -> Result<()> {
    recording::request(thread()?);
    Ok(())
}

/// The recording, or `null` while there is none. Call it after `flush`, which applies the code events of the recorded code.
#[napi]
pub fn take_recording(env: &Env, shape: String) -> Result<Option<Recording>> {
    let shape = V8StackShape::named(&shape).ok_or_else(|| failed(format!("unknown shape {shape:?}")))?;
    let Some(walk) = RECORDER.take() else { return Ok(None) };
    let version = env.get_node_version()?;
    let map = event_queue::map().lock().map_err(|error| failed(error.to_string()))?;
    let raw_frames = walk.frames;
    let (registers, rest) = walk.numbers.split_at(REGISTER_NAMES.len());
    let (tables, position) = rest.split_at(TABLE_NAMES.len());
    let position = position[0];
    let named = |names: &[&str], numbers: &[u64]| -> BTreeMap<String, u64> {
        names.iter().map(|name| (*name).to_owned()).zip(numbers.iter().copied()).collect()
    };
    let mut stack = RecordedStack {
        version: format!("v{}.{}.{}", version.major, version.minor, version.patch),
        shape: shape.name.to_owned(),
        registers: named(&REGISTER_NAMES, registers),
        tables: named(&TABLE_NAMES, tables),
        words: walk.words,
        frames: raw_frames.iter().map(|raw| RecordedFrame { raw: *raw, name: name_of(&map, *raw, position) }).collect(),
    };
    let activity = replay::ACTIVITIES.iter().position(|frame| frame.is_some_and(|frame| raw_frames.contains(&frame)));
    stack.tables.insert(replay::ACTIVITY.to_owned(), activity.unwrap_or(0) as u64);
    add_ranges(&mut stack, thread()?)?;
    let leaf = raw_frames.first().and_then(|leaf| leaf_code(&map, *leaf, position));
    let recorded = RecordedV8Walk::of(&stack).map_err(failed)?;
    let leaf = match frameless_return(&stack.memory(), &recorded.registers) {
        Some(_) if leaf == Some(LeafCode::Optimized) => Some(LeafCode::Frameless),
        _ => leaf,
    };
    let is_as_requested = recorded.walk(&stack.memory()).frames == raw_frames
        && (shape.leaf.is_none() || shape.leaf == leaf)
        && shape.is_named(stack.frames.iter().map(|frame| frame.name.as_str()));
    let fixture = stack.to_json().map_err(|error| failed(error.to_string()))?;
    Ok(Some(Recording { fixture, is_as_requested }))
}

fn failed(message: impl Into<String>) -> Error {
    Error::from_reason(message.into())
}

fn thread() -> Result<&'static JsThread> {
    js_thread::current().ok_or_else(|| failed("this thread is not profiled"))
}

/// The name of a code object; a word in brackets for other frames.
fn name_of(map: &CodeMap, raw: RawFrame, position: u64) -> String {
    if raw.native_pc().is_some() {
        return "[native]".to_owned();
    }
    if let Some(frame) = synthetic_names::resolve(raw) {
        return frame.function.to_string();
    }
    map.find((raw.code + raw.at) as usize, position).map_or_else(String::new, |code| code.name.function.to_string())
}

fn leaf_code(map: &CodeMap, leaf: RawFrame, position: u64) -> Option<LeafCode> {
    if leaf.native_pc().is_some() {
        return Some(LeafCode::Native);
    }
    let code = map.find((leaf.code + leaf.at) as usize, position)?;
    match code.kind {
        CodeKind::Bytecode => Some(LeafCode::Bytecode),
        CodeKind::Baseline => Some(LeafCode::Baseline),
        CodeKind::Optimized => Some(LeafCode::Optimized),
        CodeKind::Other => (code.isolate == OF_PROCESS).then_some(LeafCode::Builtin),
    }
}

/// Adds the ranges of code, of builtins only those that contain the program counter, the link register or a word.
fn add_ranges(stack: &mut RecordedStack, thread: &JsThread) -> Result<()> {
    let ranges = js_thread::builtin_ranges().ok_or_else(|| failed("no builtins are known"))?;
    let remapped = stack.tables.get("remapped_builtins").map_or(0, |start| *start as usize);
    let EmbeddedBuiltins { start, len } = ranges.builtins;
    let registers = ["pc", "link"].iter().filter_map(|name| stack.registers.get(*name).copied());
    let addresses = stack.words.iter().map(|word| word.value).chain(registers);
    let addresses: Vec<usize> =
        addresses.map(|address| ranges.builtins.canonical_address(address as usize, remapped)).collect();
    let is_reached = |range: &&(usize, usize)| addresses.iter().any(|address| (range.0..range.1).contains(address));
    let mut tables = BTreeMap::new();
    let mut add = |table: &str, (start, end): (usize, usize)| {
        tables.insert(replay::range_name(table, start), end as u64);
    };
    ranges.interpreter.iter().filter(is_reached).for_each(|range| add(replay::INTERPRETER, *range));
    ranges.hidden.iter().filter(is_reached).for_each(|range| add(replay::HIDDEN, *range));
    thread.code_regions().for_each(|range| add(replay::CODE, range));
    add(replay::BUILTINS, (start, start + len));
    // A start without an end: that of the next one is not read.
    let starts = addresses.iter().filter_map(|address| ranges.start_of(*address));
    starts.for_each(|start| add(replay::BUILTIN, (start, 0)));
    let fast_call = ranges.fast_call.unwrap_or_default();
    for (name, offset) in replay::FAST_CALL.into_iter().zip(fast_call) {
        tables.insert(name.to_owned(), offset as u64);
    }
    stack.tables.append(&mut tables);
    Ok(())
}
