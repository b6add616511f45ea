//! The check at start: walk a stack of our own making, name its frames, and compare with what the interpreter says of
//! itself. Names of all string kinds, generators, lines. If anything differs, `start()` declines and the program runs on.
//! Normal threads with the GIL only.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use spanprof_signal::{Captured, HandlerContext, RawFrame, RawStack};

use super::capture_signal;
use super::error::{RuntimeError, RuntimeErrorKind};
use super::layout::{Layout, LineTableFormat};
use super::resolve::Resolver;

/// Frames of each kind around one call of `look`: plain, closure, generator, class body, comprehension; names in ASCII,
/// Latin-1 and UCS-2, a file name in UCS-4.
const PROGRAM: &str = "
def leaf(look):
    return (
        look())
def Größe(look):
    def 名前():
        return leaf(look)
    return 名前()
def generator(look):
    value = [Größe(look) for _ in range(1)][0]
    yield value
class Probe:
    def method(self, look):
        return next(generator(look))
result = Probe().method(look)
";
const FILE: &str = "<spanprof self-check 𝔘>";
/// A deeper stack is compared down to this depth.
const DEPTH: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    function: String,
    file: String,
    first_line: u32,
    line: u32,
}

/// Runs the check on the calling thread.
pub fn run(py: Python<'_>, layout: &'static Layout) -> Result<(), RuntimeError> {
    let failed = |error: PyErr| RuntimeError::interpreter("running the self-check", &error);
    let pairs = Arc::new(Mutex::new(None));
    compare_inside(py, layout, &pairs).map_err(failed)?;
    let pairs = pairs.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some((expected, found)) = pairs else {
        return Err(wrong("expected the self-check to be called back once, it was not".into()));
    };
    let found = found.map_err(|captured| wrong(format!("expected a walked stack, got {captured:?}")))?;
    if found.len() < expected.len().min(DEPTH) {
        return Err(wrong(format!("expected {} frames, walked {}", expected.len(), found.len())));
    }
    for (depth, (expected, found)) in expected.iter().zip(&found).enumerate() {
        if expected != found {
            return Err(wrong(format!("frame {depth} from the leaf: expected {expected:?}, walked {found:?}")));
        }
    }
    Ok(())
}

fn wrong(message: String) -> RuntimeError {
    RuntimeError::new(
        RuntimeErrorKind::WrongStack,
        format!("the frame walk disagrees with the interpreter: {message}"),
        "report this with the full version of the interpreter; profiling stays off, the program is not affected",
    )
}

type Pairs = Option<(Vec<Seen>, Result<Vec<Seen>, Captured>)>;

fn compare_inside(py: Python<'_>, layout: &'static Layout, pairs: &Arc<Mutex<Pairs>>) -> PyResult<()> {
    let slot = Arc::clone(pairs);
    let look = PyCFunction::new_closure(
        py,
        None,
        None,
        move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
            let expected = as_the_interpreter_says(arguments.py(), layout)?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some((expected, as_walked(layout)));
            Ok(())
        },
    )?;
    let builtins = py.import("builtins")?;
    let code = builtins.getattr("compile")?.call1((PROGRAM, FILE, "exec"))?;
    let globals = PyDict::new(py);
    globals.set_item("look", look)?;
    globals.set_item("__name__", "spanprof.self_check")?;
    builtins.getattr("exec")?.call1((code, globals))?;
    Ok(())
}

fn as_the_interpreter_says(py: Python<'_>, layout: &Layout) -> PyResult<Vec<Seen>> {
    let name = if layout.line_table == LineTableFormat::Locations { "co_qualname" } else { "co_name" };
    let mut frame = py.import("sys")?.getattr("_getframe")?.call0()?;
    let mut frames = Vec::new();
    while !frame.is_none() && frames.len() < DEPTH {
        let code = frame.getattr("f_code")?;
        frames.push(Seen {
            function: code.getattr(name)?.extract()?,
            file: code.getattr("co_filename")?.extract()?,
            first_line: code.getattr("co_firstlineno")?.extract()?,
            line: frame.getattr("f_lineno")?.extract::<Option<u32>>()?.unwrap_or(0),
        });
        frame = frame.getattr("f_back")?;
    }
    Ok(frames)
}

fn as_walked(layout: &Layout) -> Result<Vec<Seen>, Captured> {
    let mut frames = vec![RawFrame::default(); DEPTH];
    let mut stack = RawStack::new(&mut frames);
    let context = HandlerContext { ucontext: std::ptr::null_mut(), thread_id: 0 };
    // SAFETY: the walk of the calling thread needs no signal: its own chain stands still while it is here.
    let captured = unsafe { capture_signal::capture(&context, &mut stack) };
    if captured != Captured::Walked {
        return Err(captured);
    }
    let mut resolver = Resolver::default();
    Ok(stack.frames().iter().map(|&raw| seen(&mut resolver, layout, raw)).collect())
}

fn seen(resolver: &mut Resolver, layout: &Layout, raw: RawFrame) -> Seen {
    match resolver.frame(layout, raw) {
        Some(frame) => Seen {
            function: frame.function.to_string(),
            file: frame.file.to_string(),
            first_line: frame.start_line,
            line: frame.line,
        },
        None => Seen { function: "(not readable)".into(), file: String::new(), first_line: 0, line: 0 },
    }
}
