//! Registers the context variable with the handler, after a test that the handler finds it: among many other variables, in
//! tables with both types of root node, with integers of every size. Normal threads with the GIL only. If the test fails, the
//! binding writes each change of context to the thread table ([`ContextSource::ThreadTable`]).

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use spanprof_signal::{guarded, Context, ProcessMemory};

use super::interpreter::context_probe::NodeTypes;
use super::interpreter::layout::fixed;
use super::interpreter::Interpreter;
use super::walk::context::{self, folded_hash, look_up_with, Lookup};
use super::walk::frame::FrameReader;

/// Where the handler reads the context id of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextSource {
    /// The context variable, read from the thread's current `Context`: no work per task switch.
    ContextVariable,
    /// The test failed: the binding writes each change by `PythonRuntime::set_thread_context`.
    ThreadTable,
}

/// Enough variables for an array node as root, which CPython uses from 17 of 32 children on.
const OTHER_VARIABLES: usize = 64;
/// Integers of each size in digits, including the limits.
const PROBES: [u64; 8] = [0, 1, (1 << 30) - 1, 1 << 30, (1 << 60) - 1, 1 << 60, 1 << 63, u64::MAX];

/// Tests the lookup and registers `variable`, or falls back to the thread table.
pub fn register(interpreter: &'static Interpreter, variable: &Bound<'_, PyAny>) -> ContextSource {
    if let Some((hash, types)) = hash_and_node_types(interpreter, variable) {
        // The reference is leaked: the handler compares with the address.
        let address = variable.clone().into_ptr() as usize;
        interpreter.context.register(address, hash, types);
        if reads_current_context(interpreter, variable).unwrap_or(false) {
            return ContextSource::ContextVariable;
        }
    }
    interpreter.context.use_thread_table();
    ContextSource::ThreadTable
}

/// The variable's hash and the node types, if every lookup agrees with the interpreter.
fn hash_and_node_types(interpreter: &Interpreter, variable: &Bound<'_, PyAny>) -> Option<(u32, NodeTypes)> {
    let py = variable.py();
    let module = py.import("contextvars").ok()?;
    let new_context = || module.getattr("Context").ok()?.call0().ok();
    let hash = folded_hash(variable.hash().ok()? as i64);
    let address = variable.as_ptr() as usize;

    let small = new_context()?;
    small.call_method1("run", (variable.getattr("set").ok()?, PROBES[1])).ok()?;
    let bitmap = root_type(table(&small)?)?;

    let large = new_context()?;
    let class = module.getattr("ContextVar").ok()?;
    for number in 0..OTHER_VARIABLES {
        let other = class.call1((format!("spanprof.probe.{number}"),)).ok()?;
        large.call_method1("run", (other.getattr("set").ok()?, number)).ok()?;
    }
    let types = NodeTypes { bitmap, array: root_type(table(&large)?)? };
    if types.bitmap == types.array
        || look_up_with(&ProcessMemory, types, hash, table(&large)?, address) != Lookup::Unset
    {
        return None;
    }
    for context in [&small, &large] {
        for probe in PROBES {
            context.call_method1("run", (variable.getattr("set").ok()?, probe)).ok()?;
            let Lookup::Value(value) = look_up_with(&ProcessMemory, types, hash, table(context)?, address) else {
                return None;
            };
            if value != context.get_item(variable).ok()?.as_ptr() as usize
                || context::integer(&FrameReader::of_process(interpreter), value) != Some(probe)
            {
                return None;
            }
        }
    }
    Some((hash, types))
}

/// Tests the complete read, from the thread state, inside a current context.
fn reads_current_context(interpreter: &'static Interpreter, variable: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = variable.py();
    const ID: u64 = 0x1234_5678_9abc;
    let reads_id =
        PyCFunction::new_closure(py, None, None, move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
            // SAFETY: reads a pthread key of this thread.
            let thread = unsafe { (interpreter.current_thread)() } as usize;
            context::read(&FrameReader::of_process(interpreter), thread) == Context::Id(ID)
        })?;
    let context = py.import("contextvars")?.getattr("Context")?.call0()?;
    let before: bool = context.call_method1("run", (&reads_id,))?.extract()?;
    context.call_method1("run", (variable.getattr("set")?, ID))?;
    let after: bool = context.call_method1("run", (&reads_id,))?.extract()?;
    Ok(after && !before)
}

/// Address of the table of a `Context` object.
fn table(context: &Bound<'_, PyAny>) -> Option<usize> {
    Some(guarded::read_u64(context.as_ptr() as usize + fixed::CONTEXT_VARIABLES)? as usize)
}

/// Address of the type of a table's root node.
fn root_type(table: usize) -> Option<usize> {
    let root = guarded::read_u64(table.checked_add(fixed::TABLE_ROOT)?)? as usize;
    Some(guarded::read_u64(root.checked_add(fixed::TYPE)?)? as usize)
}
