//! Receives V8's code events, on the JavaScript thread or a thread of its collector. Each event is stamped with the ring's
//! position and queued for the drain. Neither the drain nor the handler shares a lock with it; a queue that is not drained stops
//! growing at a limit and counts the lost events.
//!
//! # Changes in V8
//! Upstream: `include/v8-callbacks.h` (`JitCodeEvent`), `src/logging/log.cc` (`JitLogger`, names of code),
//! `src/builtins/builtins-definitions.h` (names of builtins), `src/heap/code-range.cc` (`RemapEmbeddedBuiltins`).
//!
//! | version | change | handled in |
//! |---|---|---|
//! | 10.2 (18) | no copy of the builtins; several begin alike | `find_remapped_builtins` |
//! | 10.2 (18), 11.3 (20) | the object that represents a builtin moves; its code stays | `MOVED` in `change_of` |
//! | 11.3 (20) | the isolate runs a copy of the builtins; events give the addresses of the program's | `find_remapped_builtins` |
//! | 12.4 (22) | events give the addresses of the copy | `canonical_address` in `change_of` |

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;

use spanprof_signal::{CheckedMemory, Memory, USER_SPACE_END};

use super::builtin_ranges;
use super::code_map::{CodeChange, CodeEvent, OF_MODULE, OF_PROCESS};
use super::code_object::CodeKind;
use super::known_functions::{self, NamedFunction};
use super::{code_metadata, event_queue};
use crate::positions::{names, Position};
use crate::runtime::objects::ListedCode;
use crate::runtime::self_test::{self, Probe};
use crate::runtime::small_buffers::SmallText;
use crate::runtime::v8::{self, JitCodeEvent, V8};
use crate::runtime::walk::js_thread::{self, EmbeddedBuiltins};
use crate::runtime::walk::ring_position::RingPosition;

/// Number of listings by V8.
static LISTINGS: AtomicU64 = AtomicU64::new(0);
/// Whether V8 logged remapped builtins by their remapped addresses.
static LOGS_REMAPPED: AtomicBool = AtomicBool::new(false);
/// The program's embedded builtins; written once, before the first event.
static EMBEDDED_BUILTINS: OnceLock<EmbeddedBuiltins> = OnceLock::new();

thread_local! {
    /// Set while V8 lists the thread's existing code.
    static LISTING: RefCell<Option<Listing>> = const { RefCell::new(None) };
    /// Code of the self-test's functions, while it runs.
    static PROBES: RefCell<Option<Vec<Probe>>> = const { RefCell::new(None) };
}

/// Results of a listing of existing code.
struct Listing {
    /// Ring position at its start: listed code is older.
    from: RingPosition,
    /// Listed builtins, by the program's addresses.
    builtins: Vec<(String, usize, usize)>,
    /// Listed machine code in the isolate's heap.
    machine: Vec<ListedCode>,
    /// Listed functions, and their bytecode.
    functions: Vec<(u64, usize)>,
    /// Their names, in a worker thread that V8 lists.
    named: Vec<NamedFunction>,
}

/// Whether all builtins were logged: each isolate lists them again, at equivalent addresses.
static ALL_BUILTINS_LOGGED: AtomicBool = AtomicBool::new(false);

const ADDED: i32 = 0;
const MOVED: i32 = 1;
const REMOVED: i32 = 2;
const LINE: i32 = 3;
const LINES_BEGIN: i32 = 4;
const LINES_END: i32 = 5;
const BYTECODE: i32 = 0;
const WASM_CODE: i32 = 2;
const NEW_ONLY: i32 = 0;
const EXISTING_TOO: i32 = 1;

const PAGE: usize = 4096;
/// Words of an isolate that are searched.
const ISOLATE_WORDS: usize = 16_384;

/// Start of the isolate's remapped builtins, which the isolate's tables contain; 0 when it has none.
fn find_remapped_builtins(isolate: usize, builtins: EmbeddedBuiltins) -> usize {
    let memory = CheckedMemory::default();
    let first_words = |address: usize| [0, 8, 16, 24].map(|offset| memory.word(address + offset));
    let expected = first_words(builtins.start);
    let of_isolate = CheckedMemory::default();
    let words = (0..ISOLATE_WORDS).map_while(|word| of_isolate.word(isolate + word * 8));
    // Several builtins begin alike: in Node.js 18, the first and the one after it.
    let is_plausible = |address: &usize| *address > PAGE && *address < USER_SPACE_END && !builtins.contains(*address);
    // V8 maps the copy at the begin of a page, or at the page offset of the program's. The tables contain thousands of
    // addresses with the alignment of code, and reading each of them would touch all builtins.
    let in_page = |address: &usize| address.is_multiple_of(PAGE) || address % PAGE == builtins.start % PAGE;
    words.filter(is_plausible).filter(in_page).find(|address| first_words(*address) == expected).unwrap_or(0)
}

/// Lists the isolate's existing code, which is older than `from`, and subscribes to further events. On its own thread.
///
/// `probe` compiles a function, whose events show where V8 stores the line tables that it does not log.
pub fn enroll_isolate(v8: &V8, isolate: usize, from: RingPosition, probe: &dyn Fn()) {
    if let Some((start, len)) = v8.embedded_range(isolate) {
        let builtins = *EMBEDDED_BUILTINS.get_or_init(|| EmbeddedBuiltins { start, len });
        if let Some(thread) = js_thread::by_isolate(isolate) {
            thread.remapped_builtins.store(find_remapped_builtins(isolate, builtins), Ordering::Release);
        }
    }
    code_metadata::reset();
    send(isolate, CodeChange::IsolateCleared);
    let thread = js_thread::by_isolate(isolate);
    let set_listing = |is_listing: bool| {
        thread.into_iter().for_each(|thread| thread.is_listing.store(is_listing, Ordering::Relaxed));
    };
    set_listing(true);
    let listing = Listing { from, builtins: Vec::new(), machine: Vec::new(), functions: Vec::new(), named: Vec::new() };
    LISTING.with(|cell| *cell.borrow_mut() = Some(listing));
    // SAFETY: on the isolate's thread; the callback has static lifetime.
    unsafe {
        if let Some(detailed) = v8.detailed_positions {
            detailed(isolate);
        }
        if code_metadata::needs_probe() {
            (v8.set_code_callback)(isolate, NEW_ONLY, Some(on_event));
            probe();
        }
        (v8.set_code_callback)(isolate, NEW_ONLY, Some(on_event));
        if !list_known(v8, isolate) {
            LISTINGS.fetch_add(1, Ordering::Relaxed);
            (v8.set_code_callback)(isolate, EXISTING_TOO, Some(on_event));
            LISTING.with(|cell| {
                let listing = cell.borrow();
                let named = listing.iter().map(|listing| &listing.named).filter(|named| !named.is_empty());
                named.for_each(|named| known_functions::learn(isolate, named));
            });
        }
    }
    send_unlisted(v8, isolate);
    set_listing(false);
    event_queue::raise_stopped_limit();
    let listed = LISTING.with(|cell| cell.borrow_mut().take()).map(|listing| listing.builtins).unwrap_or_default();
    if ALL_BUILTINS_LOGGED.load(Ordering::Acquire) {
        return;
    }
    static PUBLISHED: AtomicBool = AtomicBool::new(false);
    if let Some(builtin_ranges) = EMBEDDED_BUILTINS.get().and_then(|builtins| builtin_ranges::of(&listed, *builtins)) {
        if !PUBLISHED.swap(true, Ordering::AcqRel) {
            js_thread::publish(builtin_ranges.leak());
        }
        ALL_BUILTINS_LOGGED.store(event_queue::lost() == 0, Ordering::Release);
    }
}

/// Reports the functions that existed at the start of a worker as V8 would list them; false when V8 must list them.
fn list_known(v8: &V8, isolate: usize) -> bool {
    if is_main_thread() || !ALL_BUILTINS_LOGGED.load(Ordering::Acquire) {
        return false;
    }
    // The scripts are those of every worker.
    let Some(existing) = known_functions::existing(v8, isolate, &mut |change| send(OF_PROCESS, change)) else {
        return false;
    };
    let map_word = existing.first().and_then(|(_, function)| code_metadata::map_word(function.start));
    LISTING.with(|cell| {
        if let Some(listing) = &mut *cell.borrow_mut() {
            listing.functions = existing.iter().map(|(function, existing)| (*function, existing.start)).collect();
        }
    });
    let functions = existing.into_iter().map(|(_, function)| function).collect();
    send(isolate, CodeChange::Existing { functions, map_word });
    true
}

fn is_main_thread() -> bool {
    spanprof_os::thread_id() == std::process::id()
}

/// Adds code that V8 left out of the listing. Requires GC callbacks, since listed functions may move.
fn send_unlisted(v8: &V8, isolate: usize) {
    if !v8.has_gc_callbacks() {
        return;
    }
    let listed_code = LISTING.with(|cell| {
        let mut cell = cell.borrow_mut();
        cell.as_mut().map(|listing| (std::mem::take(&mut listing.machine), std::mem::take(&mut listing.functions)))
    });
    let (Some((machine, functions)), Some(thread)) = (listed_code, js_thread::by_isolate(isolate)) else {
        return;
    };
    let remapped = thread.remapped_builtins.load(Ordering::Relaxed);
    let mut near: Vec<usize> = Some(remapped).filter(|address| *address != 0).into_iter().collect();
    if machine.is_empty() {
        near.extend(v8.code_range(isolate));
    }
    code_metadata::find_unlisted(v8, machine, functions, &near, &mut |change| {
        if let CodeChange::Unlisted { start, len, .. } = change {
            thread.add_code(start, len);
        }
        send(isolate, change);
    });
}

/// A collection begins: the functions listed so far may move. On the isolate's own thread.
pub fn collection_begins() {
    let _ = LISTING.try_with(|cell| {
        if let Ok(Some(listing)) = cell.try_borrow_mut().as_deref_mut() {
            listing.functions.clear();
            listing.named.clear();
        }
    });
}

/// The isolate ends. On its own thread.
pub fn leave_isolate(v8: &V8, isolate: usize) {
    // SAFETY: on the isolate's thread, while it lives.
    unsafe { (v8.set_code_callback)(isolate, 0, None) };
    code_metadata::reset();
    send(isolate, CodeChange::IsolateCleared);
}

/// A collection that moved code is over. On the isolate's own thread.
pub fn collection_ends(isolate: usize) {
    send(isolate, CodeChange::CollectionEnded);
}

pub fn logs_remapped() -> bool {
    LOGS_REMAPPED.load(Ordering::Relaxed)
}

pub fn listings() -> u64 {
    LISTINGS.load(Ordering::Relaxed)
}

fn send(isolate: usize, change: CodeChange) {
    let listed = matches!(
        change,
        CodeChange::Added { .. }
            | CodeChange::Unlisted { .. }
            | CodeChange::Existing { .. }
            | CodeChange::Table { .. }
            | CodeChange::Baseline { .. }
            | CodeChange::Script { .. }
            | CodeChange::Lines { .. }
    );
    let listed_at = LISTING.with(|cell| cell.borrow().as_ref().filter(|_| listed).map(|listing| listing.from));
    let RingPosition { ring, head } = listed_at.unwrap_or_else(RingPosition::now);
    event_queue::push(CodeEvent { ring, position: head, isolate, change }, listed_at.is_some());
}

extern "C" fn on_event(event: *mut JitCodeEvent) {
    // A panic must not unwind through V8.
    spanprof_profiler::binding::ffi_guard((), || {
        // SAFETY: V8 lends the event for the duration of the call, to this thread alone.
        let event = unsafe { &mut *event };
        if let Some(change) = change_of(event) {
            // Each isolate lists builtins and WebAssembly code, which outlive it.
            let owner = match change {
                CodeChange::Added { start, .. } if is_builtin(start) => OF_PROCESS,
                CodeChange::Added { .. } if event.code_kind == WASM_CODE => OF_MODULE,
                _ => event.isolate,
            };
            send(owner, change);
        }
    });
}

/// Collects the code of the self-test's functions on this thread, until `take_probes`.
pub fn expect_probes() {
    PROBES.with(|probes| *probes.borrow_mut() = Some(Vec::new()));
}

pub fn take_probes() -> Vec<Probe> {
    PROBES.with(|probes| probes.borrow_mut().take()).unwrap_or_default()
}

fn record_probe(logged: &str, start: usize, len: usize) {
    PROBES.with(|probes| {
        let mut probes = probes.borrow_mut();
        let Some(probes) = probes.as_mut() else { return };
        let is_inner = logged.contains(self_test::INNER);
        if is_inner || logged.contains(self_test::OUTER) {
            probes.push(Probe { is_inner, start, len });
        }
    });
}

fn change_of(event: &mut JitCodeEvent) -> Option<CodeChange> {
    match event.kind {
        ADDED if is_logged_builtin(event) => None,
        ADDED => {
            // SAFETY: for added code the union is the name's address and length.
            let name = unsafe { std::slice::from_raw_parts(event.union[0] as *const u8, event.union[1]) };
            let logged = String::from_utf8_lossy(name);
            let logged = if event.code_kind == WASM_CODE { names::of_wasm(&logged).into() } else { logged };
            record_probe(&logged, event.start, event.len);
            let thread = js_thread::by_isolate(event.isolate);
            let remapped = thread.map_or(0, |thread| thread.remapped_builtins.load(Ordering::Relaxed));
            if remapped != 0 && event.start == remapped {
                LOGS_REMAPPED.store(true, Ordering::Relaxed);
            }
            let start = EMBEDDED_BUILTINS
                .get()
                .map_or(event.start, |builtins| builtins.canonical_address(event.start, remapped));
            if is_builtin(start) {
                LISTING.with(|cell| {
                    if let Some(listing) = &mut *cell.borrow_mut() {
                        listing.builtins.push((logged.to_string(), start, event.len));
                    }
                });
            } else if let (Some(thread), true) = (thread, event.code_kind != BYTECODE) {
                thread.add_code(start, event.len);
            }
            let kind = CodeKind::of(&logged, event.code_kind == BYTECODE);
            record_listed(event, start, kind, &logged);
            let isolate = event.isolate;
            let mut emit = |change| send(isolate, change);
            let (script, inlining) =
                v8::published().map_or((0, None), |v8| code_metadata::describe_code(v8, event, kind, &mut emit));
            let map_word = (kind == CodeKind::Bytecode).then(|| code_metadata::map_word(event.start)).flatten();
            let logged = SmallText::from(&*logged);
            Some(CodeChange::Added { start, len: event.len, logged, kind, script, inlining, map_word })
        }
        // Up to version 11 the object that represents a builtin moves; its code stays.
        MOVED if is_builtin(event.start) || event.start == event.union[0] => None,
        MOVED => {
            let mut keeps_old_address = false;
            if let Some(thread) = js_thread::by_isolate(event.isolate) {
                thread.code_moves.fetch_add(1, Ordering::Relaxed);
                keeps_old_address = thread.active_collections.load(Ordering::Relaxed) != 0;
                if !keeps_old_address {
                    thread.address_epoch.fetch_add(1, Ordering::Relaxed);
                }
                if thread.has_code(event.start) {
                    thread.add_code(event.union[0], event.len);
                }
            }
            Some(CodeChange::Moved { from: event.start, to: event.union[0], keeps_old_address })
        }
        REMOVED => {
            if let Some(thread) = js_thread::by_isolate(event.isolate) {
                thread.code_moves.fetch_add(1, Ordering::Relaxed);
                thread.address_epoch.fetch_add(1, Ordering::Relaxed);
            }
            Some(CodeChange::Removed { start: event.start })
        }
        LINES_BEGIN => {
            // The table of bytecode is read with it, once its place is known.
            let is_read = event.code_kind == BYTECODE && !code_metadata::needs_probe();
            let positions = || Box::into_raw(Box::new(Vec::<Position>::new())).cast();
            event.user_data = if is_read { std::ptr::null_mut() } else { positions() };
            None
        }
        LINE => {
            // SAFETY: the vector made at the start of this table, which V8 passes back.
            if let Some(positions) = unsafe { event.user_data.cast::<Vec<Position>>().as_mut() } {
                let position = (event.union[0] as u32, event.union[1] as u32);
                // V8 logs the position of a statement twice.
                if positions.last() != Some(&position) {
                    positions.push(position);
                }
            }
            None
        }
        LINES_END if !event.user_data.is_null() => {
            // SAFETY: the vector made at the start of this table, which V8 passes back; V8 does not use the word again.
            let positions_box = unsafe { Box::from_raw(event.user_data.cast::<Vec<Position>>()) };
            let positions = positions_box.as_slice().into();
            code_metadata::pending_lines(event.start, *positions_box);
            Some(CodeChange::Lines { start: event.start, positions })
        }
        _ => None,
    }
}

/// Records listed code for the search of unlisted code.
fn record_listed(event: &JitCodeEvent, start: usize, kind: CodeKind, logged: &str) {
    if is_builtin(start) || event.code_kind == WASM_CODE {
        return;
    }
    LISTING.with(|cell| {
        let Some(listing) = &mut *cell.borrow_mut() else { return };
        let function = code_metadata::function_of(event);
        match (kind, function) {
            (CodeKind::Bytecode, Some(function)) => {
                listing.functions.push((function, start));
                if !is_main_thread() && known_functions::may_learn() {
                    listing.named.push(NamedFunction { function, start, logged: logged.into() });
                }
            }
            (CodeKind::Bytecode, None) => {}
            (CodeKind::Optimized, Some(function)) => {
                listing.machine.push(ListedCode { start, len: event.len, function })
            }
            _ => listing.machine.push(ListedCode { start, len: event.len, function: 0 }),
        }
    });
}

fn is_builtin(address: usize) -> bool {
    EMBEDDED_BUILTINS.get().is_some_and(|builtins| builtins.contains(address))
}

fn is_logged_builtin(event: &JitCodeEvent) -> bool {
    let remapped = || {
        let thread = js_thread::by_isolate(event.isolate);
        thread.map_or(0, |thread| thread.remapped_builtins.load(Ordering::Relaxed))
    };
    ALL_BUILTINS_LOGGED.load(Ordering::Relaxed)
        && EMBEDDED_BUILTINS
            .get()
            .is_some_and(|builtins| builtins.contains(builtins.canonical_address(event.start, remapped())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_builtin_that_begins_like_the_first_one_is_no_copy_of_all() {
        #[repr(align(4096))]
        struct Code([u8; 2 * PAGE]);
        let builtins = Code([0x90; 2 * PAGE]);
        let copy = Code([0x90; 2 * PAGE]);
        let [start, copied] = [&builtins, &copy].map(|code| code.0.as_ptr() as usize);
        let find = |isolate: &[usize]| {
            find_remapped_builtins(isolate.as_ptr() as usize, EmbeddedBuiltins { start, len: 2 * PAGE })
        };
        // The search ends at memory that cannot be read: only the first words are those of the isolate.
        assert_eq!(find(&[start + 64, start + PAGE, copied]), copied);
    }
}
