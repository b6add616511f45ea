//! The self-check at start: walks the stack of a test program, resolves its frames and compares them with the interpreter's own
//! frames. Covers names of all string kinds, generators and lines. If a frame differs, `start()` declines and the program
//! continues without profiling. Frames of the calling program are not compared: a compiler such as Nuitka makes frames with lines of
//! its own. Normal threads with the GIL only.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use spanprof_signal::{Captured, HandlerContext, RawFrame, RawStack};

use super::capture;
use super::error::{RuntimeError, RuntimeErrorKind};
use super::interpreter::layout::{InterpreterLayout, LineTableFormat};
use super::names::resolve::FrameResolver;

/// Frames of each kind around one call of `walk`: plain, closure, generator, class body, comprehension; names in ASCII,
/// Latin-1 and UCS-2, a file name in UCS-4. The names are set afterwards: to compile them, the interpreter imports a library.
const PROGRAM: &str = "
def named(name):
    def rename(function):
        code = function.__code__
        names = {'co_name': name, 'co_qualname': name} if hasattr(code, 'co_qualname') else {'co_name': name}
        function.__code__ = code.replace(**names)
        return function
    return rename
def leaf(walk):
    return (
        walk())
@named('Größe')
def latin(walk):
    @named('名前')
    def ucs2():
        return leaf(walk)
    return ucs2()
def generator(walk):
    value = [latin(walk) for _ in range(1)][0]
    yield value
class Probe:
    def method(self, walk):
        return next(generator(walk))
result = Probe().method(walk)
";
const FILE: &str = "<spanprof self-check 𝔘>";
/// The walk ends at this depth, far below the frames of the check.
const DEPTH: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
struct CheckedFrame {
    function: String,
    file: String,
    first_line: u32,
    line: u32,
}

/// Runs the check on the calling thread.
pub fn run(py: Python<'_>, layout: &'static InterpreterLayout) -> Result<(), RuntimeError> {
    let failed = |error| RuntimeError::interpreter(py, "running the self-check", error);
    let stacks = Arc::new(Mutex::new(None));
    run_program(py, layout, &stacks).map_err(failed)?;
    let stacks = stacks.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some((expected, walked)) = stacks else {
        return Err(wrong_stack("expected one call from the self-check program, got none".into()));
    };
    let walked = walked.map_err(|captured| wrong_stack(format!("expected a walked stack, got {captured:?}")))?;
    if walked.len() < expected.len() {
        return Err(wrong_stack(format!("expected {} frames, walked {}", expected.len(), walked.len())));
    }
    for (depth, (expected, walked)) in expected.iter().zip(&walked).enumerate() {
        if expected != walked {
            return Err(wrong_stack(format!("frame {depth} from the leaf: expected {expected:?}, walked {walked:?}")));
        }
    }
    Ok(())
}

fn wrong_stack(message: String) -> RuntimeError {
    RuntimeError::new(
        RuntimeErrorKind::WrongStack,
        format!("the frame walk disagrees with the interpreter: {message}"),
        "report this with the full version of the interpreter; profiling stays off, the program is not affected",
    )
}

/// The interpreter's own stack and the walked one.
type Stacks = Option<(Vec<CheckedFrame>, Result<Vec<CheckedFrame>, Captured>)>;

fn run_program(py: Python<'_>, layout: &'static InterpreterLayout, stacks: &Arc<Mutex<Stacks>>) -> PyResult<()> {
    let stacks = Arc::clone(stacks);
    let walk = PyCFunction::new_closure(
        py,
        None,
        None,
        move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
            let expected = interpreter_stack(arguments.py(), layout)?;
            *stacks.lock().unwrap_or_else(PoisonError::into_inner) = Some((expected, walked_stack(layout)));
            Ok(())
        },
    )?;
    let builtins = py.import("builtins")?;
    let code = builtins.getattr("compile")?.call1((PROGRAM, FILE, "exec"))?;
    let globals = PyDict::new(py);
    globals.set_item("walk", walk)?;
    globals.set_item("__name__", "spanprof.self_check")?;
    builtins.getattr("exec")?.call1((code, globals))?;
    Ok(())
}

fn interpreter_stack(py: Python<'_>, layout: &InterpreterLayout) -> PyResult<Vec<CheckedFrame>> {
    let name = if layout.line_table == LineTableFormat::Locations { "co_qualname" } else { "co_name" };
    let mut frame = py.import("sys")?.getattr("_getframe")?.call0()?;
    let mut frames = Vec::new();
    while !frame.is_none() {
        let code = frame.getattr("f_code")?;
        let file: String = code.getattr("co_filename")?.extract()?;
        if file != FILE {
            break;
        }
        frames.push(CheckedFrame {
            function: code.getattr(name)?.extract()?,
            file,
            first_line: code.getattr("co_firstlineno")?.extract()?,
            line: frame.getattr("f_lineno")?.extract::<Option<u32>>()?.unwrap_or(0),
        });
        frame = frame.getattr("f_back")?;
    }
    Ok(frames)
}

fn walked_stack(layout: &InterpreterLayout) -> Result<Vec<CheckedFrame>, Captured> {
    let mut frames = vec![RawFrame::default(); DEPTH];
    let mut stack = RawStack::new(&mut frames);
    let context = HandlerContext { ucontext: std::ptr::null_mut(), thread_id: 0, stack_limit: 0 };
    // SAFETY: the walk of the calling thread needs no signal: its chain does not change during this call.
    let captured = unsafe { capture::capture(&context, &mut stack) };
    if captured != Captured::Walked {
        return Err(captured);
    }
    let mut resolver = FrameResolver::default();
    Ok(stack.frames().iter().map(|&raw| checked_frame(&mut resolver, layout, raw)).collect())
}

fn checked_frame(resolver: &mut FrameResolver, layout: &InterpreterLayout, raw: RawFrame) -> CheckedFrame {
    match resolver.frame(layout, raw) {
        Some(frame) => CheckedFrame {
            function: frame.function.to_string(),
            file: frame.file.to_string(),
            first_line: frame.start_line,
            line: frame.line,
        },
        None => CheckedFrame { function: "(not readable)".into(), file: String::new(), first_line: 0, line: 0 },
    }
}
