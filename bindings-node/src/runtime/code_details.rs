//! What more is asked about new code while V8 tells of it: which script it is of, and which functions were inlined. A script
//! is described once per thread. Called on the JavaScript thread, for the time of V8's call.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use spanprof_signal::guarded;

use super::code_map::{Change, Kind};
use super::heap::{executable_near, Found, Layout, Listed};
use super::v8::{JitCodeEvent, V8};
use crate::positions::{Held, Inlining, Position, ScriptFacts};

/// Longest name and announcement of a map that are taken; an inline map is as long as the script.
const MAX_NAME_UNITS: usize = 4096;
const MAX_URL_UNITS: usize = 48 << 20;
/// Line tables that wait for their code.
const MAX_LINES: usize = 256;
const MAX_SCRIPTS: usize = 1 << 16;

/// Optimised code whose inlined functions are known, and is not.
pub static INLINING_READ: AtomicU64 = AtomicU64::new(0);
pub static INLINING_UNREAD: AtomicU64 = AtomicU64::new(0);

static SCRIPTS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// V8's numbers of this isolate's scripts with ours, and whether what was told of them is still held.
    static KNOWN: RefCell<HashMap<i32, (u32, Arc<AtomicBool>)>> = RefCell::new(HashMap::new());
    /// Line tables, which come before their code: functions that are compiled together have all theirs first.
    static LINES: RefCell<VecDeque<(usize, Vec<Position>)>> = const { RefCell::new(VecDeque::new()) };
}

fn layout() -> Option<&'static Layout> {
    static FOUND: OnceLock<Option<Layout>> = OnceLock::new();
    FOUND.get_or_init(Layout::find).as_ref()
}

/// Whether the line tables of listed byte code cannot be found yet.
pub fn needs_probe() -> bool {
    layout().is_some_and(|layout| !layout.has_learned())
}

/// How far before the byte code at `start` its object says of what kind it is, and the word that says so.
pub fn kind_word(start: usize) -> Option<(usize, u64)> {
    let before = layout()?.byte_code_header_bytes();
    Some((before, guarded::read_u64(start.wrapping_sub(before))?))
}

/// The isolate begins or ends.
pub fn forget() {
    KNOWN.with(|known| known.borrow_mut().clear());
    LINES.with(|lines| lines.borrow_mut().clear());
}

/// A line table, before its code.
pub fn lines(start: usize, positions: Vec<Position>) {
    LINES.with(|lines| {
        let mut lines = lines.borrow_mut();
        if lines.len() >= MAX_LINES {
            lines.pop_front();
        }
        lines.push_back((start, positions));
    });
}

/// The script and the inlined functions of code that V8 tells of now. What comes before the code itself goes to `emit`:
/// scripts not told of before, and line tables that V8 has but does not tell.
pub fn of_code(
    v8: &V8,
    event: &JitCodeEvent,
    kind: Kind,
    emit: &mut dyn FnMut(Change),
) -> (u32, Option<Box<Inlining>>) {
    let (Some(function), Some(layout)) = (function_of(event), layout()) else { return (0, None) };
    let number = script_number(v8, layout, function, emit);
    let (start, len) = (event.start, event.len);
    let told = LINES.with(|lines| {
        let mut lines = lines.borrow_mut();
        let at = lines.iter().rposition(|told| told.0 == start)?;
        lines.remove(at).map(|told| told.1)
    });
    match kind {
        Kind::ByteCode => match told {
            Some(told) => layout.learn_from_byte_code(start, &told),
            // Listed, from before we came.
            None => {
                if let Some((form, bytes)) = layout.byte_code_table(start) {
                    emit(Change::Table { start, len, form, bytes });
                }
            }
        },
        Kind::Baseline => {
            if let Some(baseline) = layout.baseline(start) {
                emit(Change::Baseline { start, len, baseline: Box::new(baseline) });
            }
        }
        Kind::Optimised => {
            return (number, inlining(v8, layout, (start, len), function, told.as_deref(), emit));
        }
        Kind::Other => {}
    }
    (number, None)
}

fn inlining(
    v8: &V8,
    layout: &Layout,
    code: (usize, usize),
    function: u64,
    told: Option<&[Position]>,
    emit: &mut dyn FnMut(Change),
) -> Option<Box<Inlining>> {
    let inlining = layout.inlining(code, function, told, &mut |function| script_number(v8, layout, function, emit));
    let counter = if inlining.is_some() { &INLINING_READ } else { &INLINING_UNREAD };
    counter.fetch_add(1, Ordering::Relaxed);
    inlining.map(Box::new)
}

/// The function of code that V8 tells of now, where its object lies by then.
pub fn function_of(event: &JitCodeEvent) -> Option<u64> {
    // SAFETY: V8 lends the handle, if there is one, for the time of the call.
    unsafe { event.script.as_ref() }.map(|function| *function as u64)
}

/// Tells of the optimised code that was not listed: `listed` is the machine code that was, `functions` are those of listed
/// byte code with its beginning, and lie where they lay then. Machine code is made around `place` too.
pub fn unlisted(
    v8: &V8,
    mut listed: Vec<Listed>,
    mut functions: Vec<(u64, usize)>,
    place: usize,
    emit: &mut dyn FnMut(Change),
) {
    let Some((layout, shape)) = layout().and_then(|layout| Some((layout, layout.shape(&listed)?))) else { return };
    listed.sort_unstable_by_key(|piece| piece.start);
    functions.sort_unstable();
    let byte_code_of = |function: u64| {
        let at = functions.binary_search_by_key(&function, |known| known.0).ok()?;
        functions.get(at).map(|known| known.1)
    };
    let ends = [listed.first(), listed.last()].into_iter().flatten().map(|piece| piece.start);
    let places: Vec<usize> = ends.chain((place != 0).then_some(place)).collect();
    let found =
        layout.unlisted(&shape, &executable_near(&places), &listed, &|function| byte_code_of(function).is_some());
    for Found { start, len, function } in found {
        let Some(byte_code) = byte_code_of(function) else { continue };
        let inlining = inlining(v8, layout, (start, len), function, None, emit);
        emit(Change::Unlisted { start, len, byte_code, inlining });
    }
}

fn script_number(v8: &V8, layout: &Layout, function: u64, emit: &mut dyn FnMut(Change)) -> u32 {
    let Some(script) = layout.script(function) else { return 0 };
    // SAFETY: the object was seen to be a function with a script; a handle is the address of a word that holds it.
    let Some(id) = (unsafe { v8.script_id(function as usize) }) else { return 0 };
    let known =
        KNOWN.with(|known| known.borrow().get(&id).map(|(number, is_held)| (*number, is_held.load(Ordering::Relaxed))));
    let number = match known {
        Some((number, true)) => return number,
        Some((number, false)) => number,
        None => SCRIPTS.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
    };
    let (held, is_held) = Held::new();
    KNOWN.with(|known| {
        let mut known = known.borrow_mut();
        if known.len() >= MAX_SCRIPTS {
            known.retain(|_, (_, is_held)| is_held.load(Ordering::Relaxed));
        }
        if known.len() >= MAX_SCRIPTS {
            known.clear();
        }
        known.insert(id, (number, is_held));
    });
    let source = layout.source(script);
    let with_lines = source.and_then(|source| {
        let line_starts = layout.line_starts(script, source.units).or_else(|| source.line_starts())?;
        Some((source, line_starts))
    });
    let Some((source, line_starts)) = with_lines else { return number };
    // SAFETY: as above, inside V8's call, where handles are made and given back.
    let url = unsafe { v8.source_mapping_url(function as usize) };
    let map_url = url.and_then(|url| layout.text(url as u64)).and_then(|text| text.to_text(MAX_URL_UNITS));
    let name = layout.name(script).and_then(|name| name.to_text(MAX_NAME_UNITS)).unwrap_or_default();
    let map_url = map_url.filter(|url| !url.is_empty());
    let facts = ScriptFacts { name, line_starts, units: source.units as u32, map_url, held };
    emit(Change::Script { number, facts: Box::new(facts) });
    number
}
