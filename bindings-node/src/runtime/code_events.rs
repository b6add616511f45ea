//! V8 tells of code here, on the JavaScript thread or on one of its collector's: each event is stamped with the ring's
//! position and queued for the drain. No lock is shared with the drain or the handler; a queue that nobody drains stops
//! growing at a limit and counts what it lost.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

use crossbeam_queue::SegQueue;
use spanprof_signal::guarded;

use super::code_details;
use super::code_map::{Change, CodeEvent, Kind, OF_MODULE, OF_PROCESS};
use super::heap::Listed;
use super::js_thread_signal::{self, BuiltIn, Landmarks};
use super::ring_position_signal::RingPosition;
use super::self_test::{self, Probe};
use super::told::Text;
use super::v8::{JitCodeEvent, V8};
use crate::positions::Position;

/// Queued while profiling is stopped, beside what was listed: after a listing it is about to start.
const MAX_UNDRAINED_BYTES: usize = 4 << 20;
const MAX_QUEUED_BYTES: usize = 64 << 20;

static QUEUE: SegQueue<CodeEvent> = SegQueue::new();
static QUEUED_BYTES: AtomicUsize = AtomicUsize::new(0);
static UNDRAINED_BYTES: AtomicUsize = AtomicUsize::new(MAX_UNDRAINED_BYTES);
static LOST: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Whether an isolate's own mapping was told of by its addresses.
static TELLS_MAPPED: AtomicBool = AtomicBool::new(false);
/// The program's built-in code; written once, before the first event.
static BUILT_IN: OnceLock<BuiltIn> = OnceLock::new();

thread_local! {
    /// Set while the thread's existing code is listed.
    static LISTING: RefCell<Option<Listing>> = const { RefCell::new(None) };
    /// Code of the self-test's functions, while it is looked for.
    static PROBES: RefCell<Option<Vec<Probe>>> = const { RefCell::new(None) };
}

/// What a listing of existing code has come to.
struct Listing {
    /// Where samples stood at its beginning: what is listed lay there before.
    from: RingPosition,
    /// Built-in code met, by the program's addresses.
    built_in: Vec<(String, usize, usize)>,
    /// Machine code met that lies in the isolate's heap.
    machine: Vec<Listed>,
    /// Functions met, and their byte code.
    functions: Vec<(u64, usize)>,
}

/// Whether all built-in code was told of: each isolate lists it anew, at addresses that mean the same.
static BUILT_IN_IS_TOLD: AtomicBool = AtomicBool::new(false);

const ADDED: i32 = 0;
const MOVED: i32 = 1;
const REMOVED: i32 = 2;
const LINE: i32 = 3;
const LINES_BEGIN: i32 = 4;
const LINES_END: i32 = 5;
const BYTE_CODE: i32 = 0;
const WASM_CODE: i32 = 2;
const NEW_ONLY: i32 = 0;
const EXISTING_TOO: i32 = 1;

const PAGE: usize = 4096;
/// Words of an isolate that are looked at.
const ISOLATE_WORDS: usize = 16_384;

/// Where an isolate has its own mapping of the built-in code: its tables hold the address. 0 when it has none.
fn own_mapping(isolate: usize, built_in: BuiltIn) -> usize {
    let beginning = |address: usize| [0, 8, 16, 24].map(|offset| guarded::read_u64(address + offset));
    let wanted = beginning(built_in.start);
    let words = || (0..ISOLATE_WORDS).map_while(|word| guarded::read_u64(isolate + word * 8)).map(|word| word as usize);
    let is_place = |address: &usize| *address > PAGE && *address < 1 << 47 && *address != built_in.start;
    let found = |is_like: &dyn Fn(usize) -> bool| {
        let mut candidates = words().filter(is_place).filter(|address| is_like(*address));
        candidates.find(|address| beginning(*address) == wanted)
    };
    // As far as is known it begins a page, or lies in it as the program's does. The tables have thousands of addresses that
    // are aligned as code is, and to look at each of them is to touch all built-in code.
    let in_page = |address: usize| address.is_multiple_of(PAGE) || address % PAGE == built_in.start % PAGE;
    found(&in_page).or_else(|| found(&|address| (address ^ built_in.start) & 63 == 0)).unwrap_or(0)
}

/// Lists the isolate's code, which lay there when samples stood at `from`, and has V8 tell of what comes. On its own thread.
///
/// `probe` compiles something: what V8 tells of it shows where V8 keeps what it does not tell.
pub fn begin(v8: &V8, isolate: usize, from: RingPosition, probe: &dyn Fn()) {
    if let Some((start, len)) = v8.embedded_range(isolate) {
        let built_in = *BUILT_IN.get_or_init(|| BuiltIn { start, len });
        if let Some(thread) = js_thread_signal::by_isolate(isolate) {
            thread.built_in_copy.store(own_mapping(isolate, built_in), Ordering::Release);
        }
    }
    code_details::forget();
    send(isolate, Change::Forgotten);
    let thread = js_thread_signal::by_isolate(isolate);
    let is_listing = |is: bool| thread.into_iter().for_each(|thread| thread.is_listing.store(is, Ordering::Relaxed));
    is_listing(true);
    let listing = Listing { from, built_in: Vec::new(), machine: Vec::new(), functions: Vec::new() };
    LISTING.with(|place| *place.borrow_mut() = Some(listing));
    // SAFETY: on the isolate's thread; the callback lives for ever.
    unsafe {
        if let Some(detailed) = v8.detailed_positions {
            detailed(isolate);
        }
        if code_details::needs_probe() {
            (v8.set_code_callback)(isolate, NEW_ONLY, Some(on_event));
            probe();
        }
        (v8.set_code_callback)(isolate, EXISTING_TOO, Some(on_event));
    }
    tell_unlisted(v8, isolate);
    is_listing(false);
    UNDRAINED_BYTES.fetch_max(QUEUED_BYTES.load(Ordering::Relaxed) + MAX_UNDRAINED_BYTES, Ordering::Relaxed);
    let listed = LISTING.with(|place| place.borrow_mut().take()).map(|listing| listing.built_in).unwrap_or_default();
    if BUILT_IN_IS_TOLD.load(Ordering::Acquire) {
        return;
    }
    static PUBLISHED: AtomicBool = AtomicBool::new(false);
    if let Some(landmarks) = BUILT_IN.get().and_then(|built_in| landmarks_of(&listed, *built_in)) {
        if !PUBLISHED.swap(true, Ordering::AcqRel) {
            js_thread_signal::publish(landmarks);
        }
        BUILT_IN_IS_TOLD.store(LOST.load(Ordering::Relaxed) == 0, Ordering::Release);
    }
}

/// Tells of code that V8 left out of the listing; not where nobody would know that what was met has moved.
fn tell_unlisted(v8: &V8, isolate: usize) {
    if !v8.tells_collections() {
        return;
    }
    let met = LISTING.with(|place| {
        let mut place = place.borrow_mut();
        place.as_mut().map(|listing| (std::mem::take(&mut listing.machine), std::mem::take(&mut listing.functions)))
    });
    let (Some((machine, functions)), Some(thread)) = (met, js_thread_signal::by_isolate(isolate)) else { return };
    let copy = thread.built_in_copy.load(Ordering::Relaxed);
    code_details::unlisted(v8, machine, functions, copy, &mut |change| {
        if let Change::Unlisted { start, len, .. } = change {
            thread.cover(start, len);
        }
        send(isolate, change);
    });
}

/// A collection begins: what was met so far may come to lie elsewhere. On the isolate's own thread.
pub fn objects_move() {
    let _ = LISTING.try_with(|place| {
        if let Ok(Some(listing)) = place.try_borrow_mut().as_deref_mut() {
            listing.functions.clear();
        }
    });
}

/// The isolate ends. On its own thread.
pub fn end(v8: &V8, isolate: usize) {
    // SAFETY: on the isolate's thread, while it lives.
    unsafe { (v8.set_code_callback)(isolate, 0, None) };
    code_details::forget();
    send(isolate, Change::Forgotten);
}

/// A collection in which code moved is over. On the isolate's own thread.
pub fn settled(isolate: usize) {
    send(isolate, Change::Settled);
}

/// The next event; called by the drain alone.
pub fn next() -> Option<CodeEvent> {
    let Some(event) = QUEUE.pop() else {
        UNDRAINED_BYTES.store(MAX_UNDRAINED_BYTES, Ordering::Relaxed);
        return None;
    };
    QUEUED_BYTES.fetch_sub(bytes_of(&event.change), Ordering::Relaxed);
    TAKEN.fetch_add(1, Ordering::Relaxed);
    Some(event)
}

pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

pub fn tells_mapped() -> bool {
    TELLS_MAPPED.load(Ordering::Relaxed)
}

pub fn taken() -> u64 {
    TAKEN.load(Ordering::Relaxed)
}

/// Number of the run whose drain takes the events; 0 while there is none.
static TAKEN_BY: AtomicU64 = AtomicU64::new(0);

/// A run begins, whose drain takes the events until `run_ended`. To be called before its first sample.
pub fn run_begins() -> u64 {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed) + 1;
    TAKEN_BY.store(run, Ordering::Release);
    run
}

/// The run that is, or is about to end.
pub fn present_run() -> u64 {
    TAKEN_BY.load(Ordering::Acquire)
}

/// The drain of `run` takes no more events; nothing changes when another run has begun.
pub fn run_ended(run: u64) {
    let _ = TAKEN_BY.compare_exchange(run, 0, Ordering::AcqRel, Ordering::Relaxed);
}

fn send(isolate: usize, change: Change) {
    let listed = matches!(
        change,
        Change::Added { .. }
            | Change::Unlisted { .. }
            | Change::Table { .. }
            | Change::Baseline { .. }
            | Change::Script { .. }
            | Change::Lines { .. }
    );
    let begun = LISTING.with(|place| place.borrow().as_ref().filter(|_| listed).map(|listing| listing.from));
    let RingPosition { ring, head } = begun.unwrap_or_else(RingPosition::now);
    let bytes = bytes_of(&change);
    if QUEUED_BYTES.load(Ordering::Relaxed) > MAX_QUEUED_BYTES {
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // While profiling is stopped nobody else takes them.
    let is_much = QUEUED_BYTES.fetch_add(bytes, Ordering::Relaxed) > UNDRAINED_BYTES.load(Ordering::Relaxed);
    if is_much && begun.is_none() && present_run() == 0 {
        super::absorb_code_events();
    }
    QUEUE.push(CodeEvent { ring, position: head, isolate, change });
}

fn bytes_of(change: &Change) -> usize {
    size_of::<CodeEvent>()
        + match change {
            Change::Added { logged, inlining, .. } => {
                logged.bytes() + inlining.as_ref().map_or(0, |inlining| inlining.bytes())
            }
            Change::Unlisted { inlining, .. } => inlining.as_ref().map_or(0, |inlining| inlining.bytes()),
            Change::Script { facts, .. } => facts.bytes(),
            Change::Table { bytes, .. } => bytes.bytes(),
            Change::Baseline { baseline, .. } => baseline.bytes(),
            Change::Lines { positions, .. } => positions.bytes(),
            _ => 0,
        }
}

extern "C" fn on_event(event: *mut JitCodeEvent) {
    // A panic must not pass through V8.
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: V8 lends the event for the time of the call, to this thread alone.
        let event = unsafe { &mut *event };
        if let Some(change) = change_of(event) {
            // Each isolate lists such code, none takes it along.
            let owner = match change {
                Change::Added { start, .. } if is_built_in(start) => OF_PROCESS,
                Change::Added { .. } if event.code_kind == WASM_CODE => OF_MODULE,
                _ => event.isolate,
            };
            send(owner, change);
        }
    });
}

/// Looks out for the self-test's functions on this thread, until `take_probes`.
pub fn expect_probes() {
    PROBES.with(|probes| *probes.borrow_mut() = Some(Vec::new()));
}

pub fn take_probes() -> Vec<Probe> {
    PROBES.with(|probes| probes.borrow_mut().take()).unwrap_or_default()
}

fn look_for_probe(logged: &str, start: usize, len: usize) {
    PROBES.with(|probes| {
        let mut probes = probes.borrow_mut();
        let Some(probes) = probes.as_mut() else { return };
        let is_inner = logged.contains(self_test::INNER);
        if is_inner || logged.contains(self_test::OUTER) {
            probes.push(Probe { is_inner, start, len });
        }
    });
}

fn change_of(event: &mut JitCodeEvent) -> Option<Change> {
    match event.kind {
        ADDED if is_told_already(event) => None,
        ADDED => {
            // SAFETY: of an added code the union is the name's address and length.
            let name = unsafe { std::slice::from_raw_parts(event.union[0] as *const u8, event.union[1]) };
            let logged = String::from_utf8_lossy(name);
            look_for_probe(&logged, event.start, event.len);
            let thread = js_thread_signal::by_isolate(event.isolate);
            let copy = thread.map_or(0, |thread| thread.built_in_copy.load(Ordering::Relaxed));
            if copy != 0 && event.start == copy {
                TELLS_MAPPED.store(true, Ordering::Relaxed);
            }
            let start = BUILT_IN.get().map_or(event.start, |built_in| built_in.said_by_program(event.start, copy));
            if is_built_in(start) {
                LISTING.with(|place| {
                    if let Some(listing) = &mut *place.borrow_mut() {
                        listing.built_in.push((logged.to_string(), start, event.len));
                    }
                });
            } else if let (Some(thread), true) = (thread, event.code_kind != BYTE_CODE) {
                thread.cover(start, event.len);
            }
            let kind = Kind::of(&logged, event.code_kind == BYTE_CODE);
            note_listed(event, start, kind);
            let isolate = event.isolate;
            let mut emit = |change| send(isolate, change);
            let (script, inlining) =
                super::published_v8().map_or((0, None), |v8| code_details::of_code(v8, event, kind, &mut emit));
            let kind_word = (kind == Kind::ByteCode).then(|| code_details::kind_word(event.start)).flatten();
            let logged = Text::from(&*logged);
            Some(Change::Added { start, len: event.len, logged, kind, script, inlining, kind_word })
        }
        // Of built-in code up to version 11 what moves is an object that stands for it; the code stays.
        MOVED if is_built_in(event.start) || event.start == event.union[0] => None,
        MOVED => {
            let mut stays_seen = false;
            if let Some(thread) = js_thread_signal::by_isolate(event.isolate) {
                thread.moves.fetch_add(1, Ordering::Relaxed);
                stays_seen = thread.collecting.load(Ordering::Relaxed) != 0;
                if !stays_seen {
                    thread.address_epoch.fetch_add(1, Ordering::Relaxed);
                }
                if thread.has_code(event.start) {
                    thread.cover(event.union[0], event.len);
                }
            }
            Some(Change::Moved { from: event.start, to: event.union[0], stays_seen })
        }
        REMOVED => {
            if let Some(thread) = js_thread_signal::by_isolate(event.isolate) {
                thread.moves.fetch_add(1, Ordering::Relaxed);
                thread.address_epoch.fetch_add(1, Ordering::Relaxed);
            }
            Some(Change::Removed { start: event.start })
        }
        LINES_BEGIN => {
            event.user_data = Box::into_raw(Box::new(Vec::<Position>::new())).cast();
            None
        }
        LINE => {
            // SAFETY: the vector made at the beginning of this table, which V8 hands back.
            if let Some(positions) = unsafe { event.user_data.cast::<Vec<Position>>().as_mut() } {
                let place = (event.union[0] as u32, event.union[1] as u32);
                // It tells of a statement twice.
                if positions.last() != Some(&place) {
                    positions.push(place);
                }
            }
            None
        }
        LINES_END if !event.user_data.is_null() => {
            // SAFETY: as above; V8 does not use the word again.
            let told = unsafe { Box::from_raw(event.user_data.cast::<Vec<Position>>()) };
            let positions = told.as_slice().into();
            code_details::lines(event.start, *told);
            Some(Change::Lines { start: event.start, positions })
        }
        _ => None,
    }
}

/// Notes code by which what the listing leaves out is found and named.
fn note_listed(event: &JitCodeEvent, start: usize, kind: Kind) {
    if is_built_in(start) || event.code_kind == WASM_CODE {
        return;
    }
    LISTING.with(|place| {
        let Some(listing) = &mut *place.borrow_mut() else { return };
        let function = code_details::function_of(event);
        match (kind, function) {
            (Kind::ByteCode, Some(function)) => listing.functions.push((function, start)),
            (Kind::ByteCode, None) => {}
            (Kind::Optimised, Some(function)) => listing.machine.push(Listed { start, len: event.len, function }),
            _ => listing.machine.push(Listed { start, len: event.len, function: 0 }),
        }
    });
}

fn is_built_in(address: usize) -> bool {
    BUILT_IN.get().is_some_and(|built_in| built_in.holds(address))
}

fn is_told_already(event: &JitCodeEvent) -> bool {
    let copy = || {
        let thread = js_thread_signal::by_isolate(event.isolate);
        thread.map_or(0, |thread| thread.built_in_copy.load(Ordering::Relaxed))
    };
    BUILT_IN_IS_TOLD.load(Ordering::Relaxed)
        && BUILT_IN.get().is_some_and(|built_in| built_in.holds(built_in.said_by_program(event.start, copy())))
}

/// Built-in code that is no frame of the program: what leads into JavaScript, out of it, and byte-code handlers.
fn is_hidden(name: &str) -> bool {
    let Some(name) = name.strip_prefix("Builtin:") else { return true };
    let beginnings = [
        "JSEntry",
        "JSConstructEntry",
        "JSRunMicrotasksEntry",
        "CEntry",
        "Call_",
        "CallFunction_",
        "CallWith",
        "Construct",
        "InterpreterPush",
        "CompileLazy",
        "HandleApiCall",
        "JSBuiltinsConstructStub",
        "ArgumentsAdaptor",
        "Deoptimization",
        "BaselineO",
        "InterpreterOnStack",
        "RecordWrite",
        "EphemeronKeyBarrier",
    ];
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}

fn landmarks_of(listed: &[(String, usize, usize)], built_in: BuiltIn) -> Option<Landmarks> {
    let ranges = |wanted: &dyn Fn(&str) -> bool| {
        let mut ranges: Vec<(usize, usize)> =
            listed.iter().filter(|(name, _, _)| wanted(name)).map(|(_, start, len)| (*start, start + len)).collect();
        ranges.sort_unstable();
        ranges
    };
    let is_interpreter = |name: &str| {
        name.ends_with(":InterpreterEntryTrampoline")
            || name.ends_with(":InterpreterEnterAtBytecode")
            || name.ends_with(":InterpreterEnterAtNextBytecode")
    };
    let interpreter = ranges(&is_interpreter);
    (!interpreter.is_empty()).then(|| Landmarks { interpreter, hidden: ranges(&is_hidden), built_in })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn landmarks_need_the_interpreters_entry() {
        let built_in = BuiltIn { start: 10, len: 45 };
        assert!(landmarks_of(&[("Builtin:ArrayMap".into(), 10, 5)], built_in).is_none());
        let listed = [
            ("BytecodeHandler:Add".into(), 50, 5),
            ("Builtin:InterpreterEntryTrampoline".into(), 20, 5),
            ("Builtin:JSEntry".into(), 10, 5),
        ];
        let landmarks = landmarks_of(&listed, built_in).unwrap();
        assert_eq!(landmarks.interpreter, [(20, 25)]);
        assert_eq!(landmarks.hidden, [(10, 15), (50, 55)]);
    }
}
