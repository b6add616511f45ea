//! Functions for the runtime's tests in Python: walks, names, contexts and a small sampler, without the engine. Built with the
//! feature `testing` only; never part of a wheel.

mod sampler;

use std::collections::HashMap;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use spanprof_aggregate::runtime::Runtime;
use spanprof_aggregate::runtime::WallRuntime;
use spanprof_signal::{guarded, Captured, Context, HandlerContext, RawFrame, RawStack};

use super::capture::{self, other_thread};
use super::names::code_info::{read_text, CodeObjectInfo};
use super::walk::context;
use super::walk::frame::FrameReader;
use super::walk::frame_word::FrameWord;
use super::{interpreter, ContextSource, PythonRuntime};

/// Function, file, first line, line, column; or only the reason.
type NamedFrame = (String, String, u32, u32, u32);

/// Adds the functions to `module`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(start, module)?)?;
    module.add_function(wrap_pyfunction!(use_context_variable, module)?)?;
    module.add_function(wrap_pyfunction!(set_thread_context, module)?)?;
    module.add_function(wrap_pyfunction!(watch_greenlet_switches, module)?)?;
    module.add_function(wrap_pyfunction!(hide_context_functions, module)?)?;
    module.add_function(wrap_pyfunction!(walk, module)?)?;
    module.add_function(wrap_pyfunction!(walk_in_handler, module)?)?;
    module.add_function(wrap_pyfunction!(walk_other, module)?)?;
    module.add_function(wrap_pyfunction!(walk_other_often, module)?)?;
    module.add_function(wrap_pyfunction!(threads, module)?)?;
    module.add_function(wrap_pyfunction!(positions, module)?)?;
    module.add_function(wrap_pyfunction!(text, module)?)?;
    module.add_function(wrap_pyfunction!(integer, module)?)?;
    module.add_function(wrap_pyfunction!(statistics, module)?)?;
    module.add_function(wrap_pyfunction!(after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(faults, module)?)?;
    module.add_function(wrap_pyfunction!(panic_inside, module)?)?;
    module.add_function(wrap_pyfunction!(sampler::sampler_start, module)?)?;
    module.add_function(wrap_pyfunction!(sampler::sampler_collected, module)?)?;
    module.add_function(wrap_pyfunction!(sampler::sampler_stop, module)?)?;
    Ok(())
}

fn runtime(py: Python<'_>) -> PyResult<std::sync::Arc<PythonRuntime>> {
    PythonRuntime::new(py)
        .map_err(|error| PyRuntimeError::new_err((error.kind.name(), error.message.clone(), error.hint.clone())))
}

/// Creates the runtime; returns the interpreter's version and the degraded modes.
#[pyfunction]
fn start(py: Python<'_>) -> PyResult<(String, Vec<&'static str>)> {
    guarded::install();
    let runtime = runtime(py)?;
    Ok((runtime.version().text.clone(), runtime.degraded()))
}

#[pyfunction]
fn use_context_variable(variable: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    Ok(match runtime(variable.py())?.set_context_variable(variable, 0) {
        ContextSource::ContextVariable => "context_variable",
        ContextSource::ThreadTable => "thread_table",
    })
}

#[pyfunction]
fn set_thread_context(py: Python<'_>, id: u64) -> PyResult<u64> {
    Ok(runtime(py)?.set_thread_context(py, id))
}

/// Registers greenlet, as the binding does when it is imported.
#[pyfunction]
fn watch_greenlet_switches(function: &Bound<'_, PyAny>) -> bool {
    super::watch_greenlet_switches(function)
}

/// Simulates an interpreter that exports no C functions for context variables; must precede the first scope of the process.
#[pyfunction]
fn hide_context_functions() {
    crate::ffi::symbols::hide_context_functions();
}

fn named(runtime: &PythonRuntime, raw: &RawFrame) -> NamedFrame {
    if let Some(reason) = raw.as_reason() {
        return (format!("[{}]", reason.name()), String::new(), 0, 0, 0);
    }
    let mut frames = Vec::new();
    // Uses the runtime's resolver, because a second one would remove tombstones from the queue.
    runtime.resolve(*raw, 0, &mut frames);
    match frames.pop() {
        Some(frame) => (frame.function.to_string(), frame.file.to_string(), frame.start_line, frame.line, frame.column),
        None => ("[code_ended]".into(), String::new(), 0, 0, 0),
    }
}

fn id_of(context: Context) -> u64 {
    match context {
        Context::Id(id) => id,
        _ => 0,
    }
}

fn outcome(captured: Captured) -> String {
    match captured {
        Captured::Walked => "walked".into(),
        Captured::Dropped(reason) => reason.name().into(),
    }
}

type Walked = (String, Vec<NamedFrame>, u64, bool);

fn report(runtime: &PythonRuntime, captured: Captured, stack: &RawStack<'_>) -> Walked {
    let frames = stack.frames().iter().map(|raw| named(runtime, raw)).collect();
    (outcome(captured), frames, id_of(stack.context), stack.is_truncated())
}

/// Walks the calling thread outside a handler: outcome, frames leaf first, context id, truncated.
#[pyfunction]
#[pyo3(signature = (depth = 512))]
fn walk(py: Python<'_>, depth: usize) -> PyResult<Walked> {
    let runtime = runtime(py)?;
    let mut frames = vec![RawFrame::default(); depth];
    let mut stack = RawStack::new(&mut frames);
    let captured = walk_here(&mut stack);
    Ok(report(&runtime, captured, &stack))
}

fn walk_here(stack: &mut RawStack<'_>) -> Captured {
    let context = HandlerContext { ucontext: std::ptr::null_mut(), thread_id: 0, stack_limit: 0 };
    // SAFETY: the calling thread's chain does not change during this call.
    unsafe { capture::capture(&context, stack) }
}

/// Walks the calling thread inside a signal handler.
#[pyfunction]
fn walk_in_handler(py: Python<'_>) -> PyResult<Walked> {
    let runtime = runtime(py)?;
    Ok(sampler::capture_by_signal(|captured, stack| report(&runtime, captured, stack)))
}

/// Walks another thread as the wall sampler does.
#[pyfunction]
#[pyo3(signature = (thread_id, handle, depth = 512))]
fn walk_other(py: Python<'_>, thread_id: u32, handle: u64, depth: usize) -> PyResult<Walked> {
    let runtime = runtime(py)?;
    Ok(py.detach(|| {
        let mut frames = vec![RawFrame::default(); depth];
        let mut stack = RawStack::new(&mut frames);
        // SAFETY: reads are guarded; the handle came from `threads`.
        let captured = unsafe { other_thread::capture_other(handle, thread_id, &mut stack) };
        report(&runtime, captured, &stack)
    }))
}

/// Walks another thread `rounds` times without pause: each distinct outcome and stack with its count.
#[pyfunction]
fn walk_other_often(py: Python<'_>, thread_id: u32, handle: u64, rounds: u32) -> PyResult<Vec<(Walked, u32)>> {
    let runtime = runtime(py)?;
    Ok(py.detach(|| {
        let mut counts: HashMap<(String, Vec<RawFrame>, u64), u32> = HashMap::new();
        let mut frames = vec![RawFrame::default(); 512];
        for _ in 0..rounds {
            let mut stack = RawStack::new(&mut frames);
            // SAFETY: reads are guarded; the handle came from `threads`.
            let captured = unsafe { other_thread::capture_other(handle, thread_id, &mut stack) };
            *counts.entry((outcome(captured), stack.frames().to_vec(), id_of(stack.context))).or_default() += 1;
        }
        let name = |(outcome, frames, id): (String, Vec<RawFrame>, u64)| {
            (outcome, frames.iter().map(|raw| named(&runtime, raw)).collect(), id, false)
        };
        counts.into_iter().map(|(stack, count)| (name(stack), count)).collect()
    }))
}

/// Kernel thread id and handle of each thread with Python frames, listed without the GIL.
#[pyfunction]
fn threads(py: Python<'_>) -> PyResult<Vec<(u32, u64)>> {
    let runtime = runtime(py)?;
    Ok(py.detach(|| {
        let mut threads = Vec::new();
        runtime.threads(&mut threads);
        threads.into_iter().map(|thread| (thread.thread_id, thread.handle)).collect()
    }))
}

/// Name, file, first line, and line and column of every instruction.
type CodePositions = (String, String, u32, Vec<(u32, u32)>);

/// Reads a code object from memory.
#[pyfunction]
fn positions(code: &Bound<'_, PyAny>, units: u32) -> PyResult<CodePositions> {
    let interpreter = interpreter::current().ok_or_else(|| PyRuntimeError::new_err("start() first"))?;
    let info = CodeObjectInfo::read(&interpreter.layout, code.as_ptr() as usize)
        .ok_or_else(|| PyRuntimeError::new_err("the code object is not readable"))?;
    let frames = (0..units).map(|unit| info.frame(FrameWord::new(0, i64::from(unit))));
    let lines = frames.map(|frame| (frame.line, frame.column)).collect();
    Ok((info.name.to_string(), info.file.to_string(), info.first_line, lines))
}

/// Reads a string from memory.
#[pyfunction]
fn text(string: &Bound<'_, PyAny>) -> Option<String> {
    read_text(&interpreter::current()?.layout.text, string.as_ptr() as usize)
}

/// Reads an `int` as the handler does.
#[pyfunction]
fn integer(object: &Bound<'_, PyAny>) -> Option<u64> {
    context::integer(&FrameReader::of_process(interpreter::current()?), object.as_ptr() as usize)
}

/// The runtime's statistics.
#[pyfunction]
fn statistics(py: Python<'_>) -> PyResult<Vec<(&'static str, String)>> {
    let mut statistics = Vec::new();
    runtime(py)?.stats(&mut statistics);
    Ok(statistics)
}

/// Number of guarded reads that faulted.
#[pyfunction]
fn faults() -> u64 {
    guarded::faults()
}

/// A call of the binding that panics.
#[pyfunction]
fn panic_inside() {
    spanprof_profiler::binding::ffi_guard((), || panic!("on purpose"));
}

#[pyfunction]
fn after_fork_in_child(py: Python<'_>) -> PyResult<()> {
    runtime(py)?.after_fork_in_child();
    Ok(())
}
