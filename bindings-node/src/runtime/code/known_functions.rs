//! Names of the functions that exist when a worker thread starts: Node.js compiled them, the same ones in each worker. A listing by
//! V8 costs a worker more CPU time than its own start. The functions of one listing are kept, by script and by their number in it,
//! and serve later workers. Any function that is not among them leads to another listing by V8. Called by `code_events`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::code_map::CodeChange;
use super::code_metadata;
use super::existing_code::{ExistingFunction, KnownFunction};
use crate::positions::LineTable;
use crate::runtime::objects::{CompiledFunction, FunctionListLayout, HeapLayout};
use crate::runtime::v8::V8;

/// Workers with more functions are listed by V8.
const MAX_FUNCTIONS: usize = 1 << 15;
/// Listings that are evaluated: where each worker has other functions, all of them are listed by V8.
const MAX_LEARNED: usize = 8;
/// Longest script name that is read.
const MAX_NAME_UNITS: usize = 1024;

/// A listed function, its bytecode and the name that V8 logged.
pub struct NamedFunction {
    pub function: u64,
    pub start: usize,
    pub logged: Box<str>,
}

/// Name and size of a script.
type ScriptKey = (Box<str>, usize);

struct KnownFunctions {
    layout: FunctionListLayout,
    scripts: HashMap<ScriptKey, KnownScript>,
}

struct KnownScript {
    /// Of the one description that serves all workers.
    number: u32,
    /// By the function's number in its script.
    functions: HashMap<usize, Arc<KnownFunction>>,
}

static KNOWN: RwLock<Option<KnownFunctions>> = RwLock::new(None);
static LEARNED: AtomicUsize = AtomicUsize::new(0);

/// Whether the next listing of a worker is evaluated.
pub fn may_learn() -> bool {
    LEARNED.load(Ordering::Relaxed) < MAX_LEARNED
}

/// Keeps the functions of a worker, which have not moved since V8 listed them.
pub fn learn(isolate: usize, listed: &[NamedFunction]) {
    LEARNED.fetch_add(1, Ordering::Relaxed);
    let Some(heap) = code_metadata::layout().filter(|_| (1..=MAX_FUNCTIONS).contains(&listed.len())) else { return };
    let functions: Vec<(u64, usize)> = listed.iter().map(|named| (named.function, named.start)).collect();
    let Some(layout) = heap.learn_function_list(isolate, &functions) else { return };
    let logged: HashMap<u64, &str> = listed.iter().map(|named| (named.function, &*named.logged)).collect();
    let keep = |compiled: &CompiledFunction| {
        let table = heap.bytecode_table(compiled.start);
        let lines = table.map(|(encoding, bytes)| LineTable::encoded(encoding, bytes.into(), compiled.len));
        let logged = Box::from(*logged.get(&compiled.function)?);
        let function = KnownFunction { logged, len: compiled.len, lines: lines.unwrap_or_default() };
        Some((compiled.index, Arc::new(function)))
    };
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let mut scripts = HashMap::new();
    for script in heap.compiled_functions(isolate, layout).unwrap_or_default() {
        let Some(key) = key_of(heap, script.script) else { continue };
        let before = known.as_ref().and_then(|known| known.scripts.get(&key));
        let number = before.map_or_else(code_metadata::new_number, |before| before.number);
        scripts.insert(key, KnownScript { number, functions: script.functions.iter().filter_map(keep).collect() });
    }
    drop(known);
    *KNOWN.write().unwrap_or_else(PoisonError::into_inner) = Some(KnownFunctions { layout, scripts });
}

/// The functions of a worker, each with its function object; `None` when one of them is not known. Scripts without a description
/// go to `emit`.
pub fn existing(v8: &V8, isolate: usize, emit: &mut dyn FnMut(CodeChange)) -> Option<Vec<(u64, ExistingFunction)>> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    let KnownFunctions { layout, scripts } = known.as_ref()?;
    let heap = code_metadata::layout()?;
    let mut existing = Vec::new();
    for script in heap.compiled_functions(isolate, *layout)? {
        let Some(first) = script.functions.first() else { continue };
        let KnownScript { number, functions } = scripts.get(&key_of(heap, script.script)?)?;
        let number = code_metadata::script_number(v8, heap, first.function, Some(*number), emit);
        for CompiledFunction { index, function, start, len } in script.functions {
            let known = functions.get(&index).filter(|known| known.len == len)?.clone();
            existing.push((function, ExistingFunction { start, script: number, known }));
        }
    }
    Some(existing)
}

/// `None` for a script without a name, such as evaluated source text.
fn key_of(heap: &HeapLayout, script: u64) -> Option<ScriptKey> {
    let name = heap.name(script)?.to_text(MAX_NAME_UNITS).filter(|name| !name.is_empty())?;
    Some((name, heap.source(script)?.units))
}
