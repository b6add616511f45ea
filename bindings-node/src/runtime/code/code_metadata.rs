//! Metadata of new code, read while V8 reports it: its script and its inlined functions. A script is described once per thread.
//! Called on the JavaScript thread, inside V8's callback.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use spanprof_signal::guarded;

use super::code_map::CodeChange;
use super::code_object::{CodeKind, CodeObject};
use crate::positions::{is_retained, Inlining, Position, RetentionGuard, ScriptInfo};
use crate::runtime::objects::{executable_near, CodeObjectLayout, HeapLayout, ListedCode, UnlistedCode};
use crate::runtime::v8::{JitCodeEvent, V8};

/// Longest name and source map URL that are read; an inline source map is as long as its script.
const MAX_NAME_UNITS: usize = 4096;
const MAX_URL_UNITS: usize = 48 << 20;
/// Maximum number of line tables that precede their code.
const MAX_LINES: usize = 256;
const MAX_SCRIPTS: usize = 1 << 16;

/// Optimized code whose inlined functions are known, and unknown.
pub static INLINING_READ: AtomicU64 = AtomicU64::new(0);
pub static INLINING_UNREAD: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// V8's ids of this isolate's scripts with our numbers.
    static SCRIPT_NUMBERS: RefCell<HashMap<i32, u32>> = RefCell::new(HashMap::new());
    /// Line tables, which precede their code: functions compiled together log all tables first.
    static PENDING_LINES: RefCell<VecDeque<(usize, Vec<Position>)>> = const { RefCell::new(VecDeque::new()) };
}

/// The layout of heap objects in this process; `None` when V8 does not export it.
pub fn layout() -> Option<&'static HeapLayout> {
    static FOUND: OnceLock<Option<HeapLayout>> = OnceLock::new();
    FOUND.get_or_init(HeapLayout::find).as_ref()
}

/// Whether the location of line tables in listed bytecode is still unknown.
pub fn needs_probe() -> bool {
    layout().is_some_and(|layout| !layout.has_learned())
}

/// The map word of the object with the bytecode at `start`.
pub fn map_word(start: usize) -> Option<NonZeroU64> {
    NonZeroU64::new(guarded::read_u64(start.wrapping_sub(layout()?.bytecode_header_bytes()))?)
}

/// Whether memory may still hold this code. The memory of machine code is reused by other machine code, or unmapped. The bytecode
/// itself is no evidence: newer versions write feedback into it.
pub fn may_be_present(code: &CodeObject) -> bool {
    match code.map_word {
        Some(word) => map_word(code.start) == Some(word),
        None => guarded::read_u64(code.start).is_some(),
    }
}

/// Clears the state of this thread when the isolate begins or ends.
pub fn reset() {
    SCRIPT_NUMBERS.with(|known| known.borrow_mut().clear());
    PENDING_LINES.with(|pending_lines| pending_lines.borrow_mut().clear());
}

/// The number of a described script of this isolate by V8's id; 0 when unknown.
pub fn known_script(id: i32) -> u32 {
    SCRIPT_NUMBERS.with(|known| known.borrow().get(&id).copied().unwrap_or(0))
}

/// Stores a line table until its code is reported.
pub fn pending_lines(start: usize, positions: Vec<Position>) {
    PENDING_LINES.with(|pending_lines| {
        let mut pending_lines = pending_lines.borrow_mut();
        if pending_lines.len() >= MAX_LINES {
            pending_lines.pop_front();
        }
        pending_lines.push_back((start, positions));
    });
}

/// Script number and inlined functions of code in V8's current event. Changes that precede the code go to `emit`: scripts
/// without a description, and line tables that V8 does not log.
pub fn describe_code(
    v8: &V8,
    event: &JitCodeEvent,
    kind: CodeKind,
    emit: &mut dyn FnMut(CodeChange),
) -> (u32, Option<Box<Inlining>>) {
    let (Some(function), Some(layout)) = (function_of(event), layout()) else { return (0, None) };
    let number = script_number(v8, layout, function, None, emit);
    let (start, len) = (event.start, event.len);
    let reported = PENDING_LINES.with(|pending_lines| {
        let mut pending_lines = pending_lines.borrow_mut();
        let index = pending_lines.iter().rposition(|reported| reported.0 == start)?;
        pending_lines.remove(index).map(|reported| reported.1)
    });
    match kind {
        CodeKind::Bytecode => match reported {
            Some(reported) => layout.learn_from_bytecode(start, &reported),
            None => {
                if let Some((encoding, bytes)) = layout.bytecode_table(start) {
                    emit(CodeChange::Table { start, len, encoding, bytes });
                }
            }
        },
        CodeKind::Baseline => {
            if let Some(baseline) = layout.baseline(start) {
                emit(CodeChange::Baseline { start, len, baseline: Box::new(baseline) });
            }
        }
        CodeKind::Optimized => {
            return (number, inlining(v8, layout, (start, len), function, reported.as_deref(), emit));
        }
        CodeKind::Other => {}
    }
    (number, None)
}

fn inlining(
    v8: &V8,
    layout: &HeapLayout,
    code: (usize, usize),
    function: u64,
    reported: Option<&[Position]>,
    emit: &mut dyn FnMut(CodeChange),
) -> Option<Box<Inlining>> {
    let inlining =
        layout.inlining(code, function, reported, &mut |function| script_number(v8, layout, function, None, emit));
    let counter = if inlining.is_some() { &INLINING_READ } else { &INLINING_UNREAD };
    counter.fetch_add(1, Ordering::Relaxed);
    inlining.map(Box::new)
}

/// The function object of V8's current event.
pub fn function_of(event: &JitCodeEvent) -> Option<u64> {
    // SAFETY: V8 lends the handle, if there is one, for the time of the call.
    unsafe { event.script.as_ref() }.map(|function| *function as u64)
}

/// Searches for machine code that V8 did not list. `listed` is the listed machine code; `functions` are the functions with
/// listed bytecode and its start, and have not moved since. The memory around the addresses `near` is searched too.
pub fn find_unlisted(
    v8: &V8,
    mut listed: Vec<ListedCode>,
    mut functions: Vec<(u64, usize)>,
    near: &[usize],
    emit: &mut dyn FnMut(CodeChange),
) {
    /// The layout is the same in the whole process.
    static CODE_LAYOUT: OnceLock<CodeObjectLayout> = OnceLock::new();
    let Some(layout) = layout() else { return };
    let learned = layout.code_layout(&listed).inspect(|learned| {
        CODE_LAYOUT.get_or_init(|| *learned);
    });
    let Some(code_layout) = learned.or_else(|| CODE_LAYOUT.get().copied().filter(|_| listed.is_empty())) else {
        return;
    };
    listed.sort_unstable_by_key(|code| code.start);
    functions.sort_unstable();
    let bytecode_of = |function: u64| {
        let index = functions.binary_search_by_key(&function, |listed| listed.0).ok()?;
        functions.get(index).map(|listed| listed.1)
    };
    let ends = [listed.first(), listed.last()].into_iter().flatten().map(|code| code.start);
    let near: Vec<usize> = ends.chain(near.iter().copied()).collect();
    let bytecodes: HashSet<usize> = functions.iter().map(|function| function.1).collect();
    let is_bytecode = |start| bytecodes.contains(&start);
    for UnlistedCode { start, len, bytecode, function } in
        layout.find_unlisted(&code_layout, &executable_near(&near), &listed, &bytecode_of, &is_bytecode)
    {
        let Some(function) = function else {
            if let Some(baseline) = layout.baseline(start) {
                emit(CodeChange::Baseline { start, len, baseline: Box::new(baseline) });
            }
            emit(CodeChange::Unlisted { start, len, bytecode, kind: CodeKind::Baseline, inlining: None });
            continue;
        };
        let inlining = inlining(v8, layout, (start, len), function, None, emit);
        emit(CodeChange::Unlisted { start, len, bytecode, kind: CodeKind::Optimized, inlining });
    }
}

/// A number for a script.
pub fn new_number() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

/// Number of a function's script; 0 when unknown. `shared`: the number of this script in every worker. A description that the drain
/// does not hold goes to `emit`.
pub fn script_number(
    v8: &V8,
    layout: &HeapLayout,
    function: u64,
    shared: Option<u32>,
    emit: &mut dyn FnMut(CodeChange),
) -> u32 {
    let Some(script) = layout.script(function) else { return 0 };
    // SAFETY: the object was verified to be a function with a script; a handle is the address of a word that contains it.
    let Some(id) = (unsafe { v8.script_id(function as usize) }) else { return 0 };
    let number = SCRIPT_NUMBERS.with(|numbers| {
        let mut numbers = numbers.borrow_mut();
        if numbers.len() >= MAX_SCRIPTS {
            numbers.retain(|_, number| is_retained(*number));
        }
        if numbers.len() >= MAX_SCRIPTS {
            numbers.clear();
        }
        *numbers.entry(id).or_insert_with(|| shared.unwrap_or_else(new_number))
    });
    if is_retained(number) {
        return number;
    }
    let source = layout.source(script);
    let with_lines = source.and_then(|source| {
        let line_starts = layout.line_starts(script, source.units).or_else(|| source.line_starts())?;
        Some((source, line_starts))
    });
    let Some((source, line_starts)) = with_lines else { return number };
    // SAFETY: the object was verified to be a function with a script. V8's callback has a handle scope open.
    let map_url_object = unsafe { v8.source_mapping_url(function as usize) };
    let map_url =
        map_url_object.and_then(|object| layout.string(object as u64)).and_then(|text| text.to_text(MAX_URL_UNITS));
    let name = layout.name(script).and_then(|name| name.to_text(MAX_NAME_UNITS)).unwrap_or_default();
    let map_url = map_url.filter(|url| !url.is_empty());
    let guard = RetentionGuard::new(number);
    let info = ScriptInfo { name, line_starts, units: source.units as u32, map_url, guard };
    emit(CodeChange::Script { number, info: Box::new(info) });
    number
}
