//! Lists the compiled functions of an isolate through its list of scripts. V8's own listing walks the heap three times and
//! computes the line ends of every script. V8 does not export the offsets that are needed: they are learned from functions that it
//! listed, and are used only if they lead to exactly those functions. Runs on the isolate's own thread, while no object moves. Not
//! here: the functions' names (`known_functions`).
//!
//! Upstream: `src/heap/heap.h` (`script_list`), `src/objects/script.h` (`shared_function_infos`),
//! `src/objects/shared-function-info.h` (`function_data`). Compared with 18.20, 20.20, 22.23, 24.21 and 26.10.

use super::{copy, field, is_object, length, smi, untagged, words, HeapLayout, WORD};

/// Offsets that V8 does not export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionListLayout {
    /// In the isolate: its list of scripts.
    scripts: usize,
    /// In a script: the list of its functions.
    functions: usize,
    /// In a function: its bytecode, or its baseline code.
    code: usize,
}

/// The compiled functions of a script.
pub struct CompiledScript {
    pub script: u64,
    pub functions: Vec<CompiledFunction>,
}

/// A function and its bytecode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompiledFunction {
    /// Number of the function in its script, in the order of the source.
    pub index: usize,
    pub function: u64,
    /// Address of the first bytecode, and their number.
    pub start: usize,
    pub len: usize,
}

const ISOLATE_WORDS: usize = 4096;
const SCRIPT_WORDS: usize = 20;
const FUNCTION_WORDS: usize = 8;
const MAX_ITEMS: usize = 1 << 16;
/// Number of listed functions to learn from.
const SAMPLES: usize = 16;

impl HeapLayout {
    /// The offsets that lead to exactly the `listed` functions, given with the first bytecode of each; `None` if there are none.
    pub fn learn_function_list(&self, isolate: usize, listed: &[(u64, usize)]) -> Option<FunctionListLayout> {
        let step = listed.len().div_ceil(SAMPLES).max(1);
        let samples = || listed.iter().step_by(step).map(|(function, _)| *function);
        let code = (1..FUNCTION_WORDS).map(|word| word * WORD).find(|offset| {
            let (function, start) = listed.first().copied().unwrap_or_default();
            self.bytecode_of(function, *offset) == Some(start)
        })?;
        let functions = (1..SCRIPT_WORDS).map(|word| word * WORD).find(|offset| {
            samples().all(|function| {
                let functions = self.script(function).and_then(|script| field(script, *offset)).and_then(weak_array);
                functions.is_some_and(|functions| functions.contains(&weak(function)))
            })
        })?;
        let script = self.script(samples().next()?)?;
        let scripts = (1..ISOLATE_WORDS).map(|word| word * WORD).find(|offset| {
            let scripts = spanprof_signal::guarded::read_u64(isolate + offset).and_then(weak_array_list);
            scripts.is_some_and(|scripts| scripts.contains(&weak(script)))
        })?;
        let layout = FunctionListLayout { scripts, functions, code };
        let compiled = self.compiled_functions(isolate, layout)?;
        let mut compiled: Vec<(u64, usize)> = compiled
            .iter()
            .flat_map(|script| script.functions.iter().map(|compiled| (compiled.function, compiled.start)))
            .collect();
        let mut listed = listed.to_vec();
        compiled.sort_unstable();
        listed.sort_unstable();
        listed.dedup();
        (compiled == listed).then_some(layout)
    }

    /// The compiled functions of each script; `None` when an object has another type than expected.
    pub fn compiled_functions(&self, isolate: usize, layout: FunctionListLayout) -> Option<Vec<CompiledScript>> {
        let scripts = weak_array_list(spanprof_signal::guarded::read_u64(isolate + layout.scripts)?)?;
        let functions = |script: u64| {
            (self.type_of(script)? == self.script_type).then_some(())?;
            // A script without functions may refer to another object.
            let functions = field(script, layout.functions).and_then(weak_array).unwrap_or_default();
            let compiled = |(index, item): (usize, u64)| {
                let function = referent(item)?;
                let start = self.bytecode_of(function, layout.code)?;
                let len = length((start - self.bytecode) as u64 + 1)?;
                Some(CompiledFunction { index, function, start, len })
            };
            let functions = functions.into_iter().enumerate().filter_map(compiled).collect();
            Some(CompiledScript { script, functions })
        };
        scripts.into_iter().filter_map(referent).map(functions).collect()
    }

    /// The first bytecode of a function with bytecode or baseline code.
    fn bytecode_of(&self, function: u64, offset: usize) -> Option<usize> {
        let code = field(function, offset).filter(|word| is_object(*word))?;
        let baseline = || {
            let is_baseline = self.type_of(code) == Some(self.baseline_type);
            words(is_baseline.then(|| untagged(code))?? + WORD).into_iter().find_map(|word| self.first_bytecode(word))
        };
        self.first_bytecode(code).or_else(baseline)
    }

    /// The address of the first bytecode, if the object is bytecode.
    pub(super) fn first_bytecode(&self, object: u64) -> Option<usize> {
        let is_bytecode = is_object(object) && self.type_of(object) == Some(self.bytecode_type);
        is_bytecode.then(|| untagged(object))?.map(|object| object + self.bytecode)
    }
}

/// A weak reference to an object.
fn weak(object: u64) -> u64 {
    object | 2
}

/// The object of a weak reference that is not cleared.
fn referent(item: u64) -> Option<u64> {
    (item & 3 == 3 && item > 3).then_some(item & !2)
}

/// The items of a `WeakFixedArray`: map, length, items.
fn weak_array(object: u64) -> Option<Vec<u64>> {
    items(object, is_object(object).then(|| length(object))??, 2)
}

/// The items of a `WeakArrayList`: map, capacity, length, items.
fn weak_array_list(object: u64) -> Option<Vec<u64>> {
    let capacity = is_object(object).then(|| length(object))??;
    let count = smi(field(object, 2 * WORD)?)?;
    (count <= capacity).then_some(())?;
    items(object, count, 3)
}

fn items(object: u64, count: usize, header_words: usize) -> Option<Vec<u64>> {
    (count <= MAX_ITEMS).then_some(())?;
    let mut bytes = vec![0; count * WORD];
    copy(&mut bytes, untagged(object)? + header_words * WORD).then_some(())?;
    Some(bytes.as_chunks::<WORD>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: u64 = 1;
    const BYTECODE: u64 = 2;
    const BASELINE: u64 = 3;
    const OTHER: u64 = 4;

    /// Objects in memory: a map, then fields.
    struct Heap(Vec<u64>);

    impl Heap {
        fn new() -> Self {
            let mut heap = Self(Vec::with_capacity(1024));
            // Maps: their type is in the second word.
            (0..=OTHER).for_each(|map_type| heap.0.extend([0, map_type]));
            heap
        }

        fn address(&self) -> u64 {
            self.0.as_ptr() as u64
        }

        fn add(&mut self, object_type: u64, fields: &[u64]) -> u64 {
            let object = self.address() + (self.0.len() * WORD) as u64 + 1;
            self.0.push(self.address() + object_type * 2 * WORD as u64 + 1);
            self.0.extend(fields);
            assert!(self.0.len() <= self.0.capacity(), "objects do not move");
            object
        }
    }

    fn smi(number: u64) -> u64 {
        number << 32
    }

    #[test]
    fn the_list_of_scripts_is_used_only_if_it_leads_to_exactly_the_listed_functions() {
        let layout = HeapLayout {
            instance_type: WORD,
            script_type: SCRIPT,
            function_script: 2 * WORD,
            bytecode: 3 * WORD,
            bytecode_type: BYTECODE,
            baseline_type: BASELINE,
            ..HeapLayout::default()
        };
        let mut heap = Heap::new();
        let script = heap.add(SCRIPT, &[0, 0, 0]);
        let bytecodes = [5, 7].map(|len| heap.add(BYTECODE, &[smi(len), 0, 0]));
        let baseline = heap.add(BASELINE, &[0, 0, 0, bytecodes[1]]);
        let not_compiled = heap.add(OTHER, &[0, 0]);
        let functions =
            [bytecodes[0], not_compiled, baseline].map(|code| heap.add(OTHER, &[code, script, 0, 0, 0, 0, 0]));
        let items = functions.map(weak);
        let list = heap.add(OTHER, &[smi(4), items[0], 3, items[1], items[2]]);
        let at = (script - 1 - heap.address()) as usize / WORD;
        heap.0[at + 3] = list;
        let scripts = heap.add(OTHER, &[smi(4), smi(2), weak(script), 3, 0, 0]);
        let isolate = [0, 0, scripts, 0];
        let isolate = isolate.as_ptr() as usize;
        let starts = bytecodes.map(|bytecode| bytecode as usize - 1 + 3 * WORD);
        let listed = [(functions[0], starts[0]), (functions[2], starts[1])];

        let learned = layout.learn_function_list(isolate, &listed).unwrap();
        assert_eq!(learned, FunctionListLayout { scripts: 2 * WORD, functions: 3 * WORD, code: WORD });
        let compiled = layout.compiled_functions(isolate, learned).unwrap();
        let expected = [(0, functions[0], starts[0], 5), (3, functions[2], starts[1], 7)];
        let expected = expected.map(|(index, function, start, len)| CompiledFunction { index, function, start, len });
        assert_eq!((compiled[0].script, compiled.len(), &compiled[0].functions[..]), (script, 1, &expected[..]));

        assert_eq!(layout.learn_function_list(isolate, &listed[..1]), None, "a function that V8 did not list");
        let more = [listed[0], listed[1], (functions[1], starts[0])];
        assert_eq!(layout.learn_function_list(isolate, &more), None, "a function that is not found");
        assert_eq!(layout.learn_function_list(isolate, &[]), None);
    }
}
