//! Functions that record stacks for the tests in `capture::recorded_stack_tests` (feature `record-stacks`): request a recording, and
//! return the fixture. Called by `xtask/live/python/record_stacks.py`. Not here: the walk that is recorded
//! (`capture::recording`).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use spanprof_recorded_stack::{RecordedFrame, RecordedStack};
use spanprof_signal::RawFrame;

use super::capture::recording::{RecordedWalk, NUMBER_NAMES, RECORDING};
use super::interpreter::{self, Interpreter};
use super::names::code_info::CodeObjectInfo;
use super::walk::frame_word::FrameWord;
use super::PythonRuntime;

/// Adds the functions to `module`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(request, module)?)?;
    module.add_function(wrap_pyfunction!(take, module)?)
}

/// Requests a recording of a stack with the function `leaf` as its leaf. `walk`: `handler`, `loop_entry` or `other_thread`.
#[pyfunction]
fn request(walk: &str, leaf: &Bound<'_, PyAny>) -> PyResult<()> {
    let walk = match walk {
        "handler" => RecordedWalk::Handler,
        "loop_entry" => RecordedWalk::LoopEntry,
        "other_thread" => RecordedWalk::OtherThread,
        _ => return Err(PyValueError::new_err(format!("expected a walk, got {walk:?}"))),
    };
    RECORDING.request(walk, leaf.as_ptr() as u64);
    Ok(())
}

/// The fixture of the recording, or `None` while it is incomplete: its content, and the names of its functions, leaf first.
#[pyfunction]
fn take(py: Python<'_>, shape: &str) -> PyResult<Option<(String, Vec<String>)>> {
    let Some(recording) = RECORDING.recorder.take() else { return Ok(None) };
    let failed = |message: String| PyRuntimeError::new_err(message);
    let interpreter = interpreter::current().ok_or_else(|| failed("the runtime is not started".into()))?;
    let version = PythonRuntime::new(py).map_err(|error| failed(error.message.clone()))?.version().text.clone();
    let first = NUMBER_NAMES.iter().map(|name| (*name).to_owned());
    let names = first.chain((0..).map(|index| format!("register_{index:02}")));
    let registers = names.zip(recording.numbers).collect();
    let frames: Vec<_> = recording.frames.into_iter().map(|raw| named(interpreter, raw)).collect();
    let names = frames.iter().map(|frame| frame.name.clone()).collect();
    let stack = RecordedStack {
        version,
        shape: shape.to_owned(),
        registers,
        tables: tables(interpreter),
        words: recording.words,
        frames,
    };
    Ok(Some((stack.to_json().map_err(|error| failed(error.to_string()))?, names)))
}

fn named(interpreter: &Interpreter, raw: RawFrame) -> RecordedFrame {
    let name = match raw.as_reason() {
        Some(reason) => format!("[{}]", reason.name()),
        None => CodeObjectInfo::read(&interpreter.layout, raw.code as usize)
            .map_or_else(String::new, |info| info.frame(FrameWord(raw.at)).function.to_string()),
    };
    RecordedFrame { raw, name }
}

/// The values of [`Interpreter`] that a walk uses, without its layout, which follows from the version.
fn tables(interpreter: &Interpreter) -> BTreeMap<String, u64> {
    let (variable, hash, types) = interpreter.context.parameters();
    [
        ("main", interpreter.main),
        ("loop_entry", interpreter.loop_entry),
        ("code_type", interpreter.code_type),
        ("frame_type", interpreter.frame_type),
        ("int_type", interpreter.int_type),
        ("descriptor_id", interpreter.descriptor_id.load(Ordering::Relaxed)),
        ("context_variable", variable),
        ("context_hash", hash as usize),
        ("context_bitmap_type", types.bitmap),
        ("context_array_type", types.array),
    ]
    .map(|(name, value)| (name.to_owned(), value as u64))
    .into()
}
