//! Code by address and time: every code object has the ring position at which it was added and, once its addresses were reused,
//! at which it ended. A sample is resolved to the code at its own position. Owned by the drain thread; pure.
//!
//! Line tables belong to their code: pairs of an offset in the code and an offset in the script, sorted.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use spanprof_aggregate::runtime::{EndedCode, Frame};

use super::bytecode_sizes::BytecodeSizes;
use super::code_object::{CodeKind, CodeObject};
use super::existing_code::{ExistingCode, ExistingFunction, TakenFunction};
use super::retired_code::{RetiredCode, NO_END};
use crate::positions::names::CodeName;
pub use crate::positions::OF_PROCESS;
use crate::positions::{Baseline, CodeLocation, Inlining, LineTable, ScriptInfo, Scripts, TableEncoding};
use crate::runtime::small_buffers::{SmallBytes, SmallPositions, SmallText};

/// One code event, as an isolate's thread received it.
#[derive(Debug)]
pub struct CodeEvent {
    /// The ring and its position at that time. Positions of another ring precede all positions of the current one.
    pub ring: usize,
    pub position: u64,
    /// The isolate, or `OF_PROCESS`, `OF_MODULE`.
    pub isolate: usize,
    pub change: CodeChange,
}

#[derive(Debug)]
pub enum CodeChange {
    Added {
        start: usize,
        len: usize,
        logged: SmallText,
        kind: CodeKind,
        /// Number of its script; 0 when unknown.
        script: u32,
        inlining: Option<Box<Inlining>>,
        /// Of bytecode: the map word of its object.
        map_word: Option<NonZeroU64>,
    },
    /// Machine code that V8 did not list, and the listed bytecode of its function.
    Unlisted {
        start: usize,
        len: usize,
        bytecode: usize,
        kind: CodeKind,
        inlining: Option<Box<Inlining>>,
    },
    /// Functions that existed at the start of a worker thread, and the map word of their bytecode.
    Existing {
        functions: Vec<ExistingFunction>,
        map_word: Option<NonZeroU64>,
    },
    /// As `Lines`, not decoded yet.
    Table {
        start: usize,
        len: usize,
        encoding: TableEncoding,
        bytes: SmallBytes,
    },
    /// As `Lines`, for baseline code.
    Baseline {
        start: usize,
        len: usize,
        baseline: Box<Baseline>,
    },
    /// Precedes the code of this script.
    Script {
        number: u32,
        info: Box<ScriptInfo>,
    },
    /// Precedes the `Added` of the same address.
    Lines {
        start: usize,
        positions: SmallPositions,
    },
    Moved {
        from: usize,
        to: usize,
        /// Moved by a collection: stacks may contain its old address until `CollectionEnded`.
        keeps_old_address: bool,
    },
    /// A collection of this isolate is over.
    CollectionEnded,
    Removed {
        start: usize,
    },
    /// The isolate ends, or lists all its code again.
    IsolateCleared,
}

/// Code that was missing from its memory at the last sweep.
struct MissingCode {
    start: usize,
    added_at: u64,
    /// Ring position after that sweep.
    position: u64,
}

/// Memory limit for code; the oldest is evicted first.
const MAX_CODE_BYTES: usize = 128 << 20;
/// Minimum number of new code objects between two sweeps.
const MIN_NEW_BEFORE_SWEEP: usize = 2048;
/// Maximum number of line tables that precede their code.
const MAX_PENDING_TABLES: usize = 4096;
const PAGE: usize = 4096;
/// Pseudo-isolate of the code of a WebAssembly module. Each isolate logs such code, as builtins, and both outlive it.
pub const OF_MODULE: usize = usize::MAX;

/// Live and retired code objects, by address.
#[derive(Default)]
pub struct CodeMap {
    /// Not in the nodes of the tree, half of which is unused where addresses ascend.
    live: BTreeMap<usize, Box<CodeObject>>,
    live_bytes: usize,
    /// The addresses of the code of each isolate, which ends with it.
    by_isolate: BTreeMap<usize, BTreeSet<usize>>,
    retired: RetiredCode,
    /// Functions of workers that no sample or event has referred to.
    existing: ExistingCode,
    /// Isolates and old addresses of code moved by a collection in progress: retired, with no end yet.
    moving: Vec<(usize, usize)>,
    missing: Vec<MissingCode>,
    /// Code objects added since the last sweep.
    added_since_sweep: usize,
    pub codes_forgotten: u64,
    /// Position up to which samples must be resolved before unreferenced names and scripts are dropped.
    prune_position: Option<u64>,
    pending: BTreeMap<usize, Arc<LineTable>>,
    /// Line tables of bytecode: functions that a program makes from one template have equal ones.
    tables: HashSet<Arc<LineTable>>,
    /// Shared by all code without a line table.
    no_lines: Arc<LineTable>,
    names: HashMap<Box<str>, Arc<CodeName>>,
    /// File of the previous name; most consecutive names have the same file.
    last_file: Arc<str>,
    /// The ring that positions refer to, and the position up to which its samples are resolved.
    ring: usize,
    resolved_up_to: u64,
    pub scripts: Scripts,
    /// Sizes of bytecodes, searched for on first use.
    bytecode_sizes: Option<Option<BytecodeSizes>>,
}

impl CodeMap {
    /// Begins a drain of a ring: drops code and scripts that no sample at or after `resolved_up_to` refers to.
    pub fn begin_drain(&mut self, ring: usize, resolved_up_to: u64) {
        if std::mem::replace(&mut self.ring, ring) != ring {
            self.reset_positions();
        }
        self.resolved_up_to = resolved_up_to;
        self.scripts.begin_drain(resolved_up_to);
        self.retired.expire(resolved_up_to);
        self.existing.expire(resolved_up_to);
    }

    /// Ends a drain: drops code that disappeared without an event, and unreferenced names, tables and scripts. All code is checked
    /// once per `MIN_NEW_BEFORE_SWEEP` or more new code objects. `position` returns the ring's position.
    pub fn sweep(
        &mut self,
        may_be_present: &dyn Fn(&CodeObject) -> bool,
        position: &dyn Fn() -> u64,
        ended: &mut Vec<EndedCode>,
    ) {
        // The move event of code that was moving during the last sweep has been applied by now.
        for MissingCode { start, added_at, position } in std::mem::take(&mut self.missing) {
            if self.live.get(&start).is_some_and(|code| code.added_at == added_at) {
                self.end(start, position, ended);
                self.codes_forgotten += 1;
                // Names and scripts are dropped after the retired code, which refers to them too.
                self.prune_position = Some(position);
            }
        }
        if self.prune_position.take_if(|position| *position <= self.resolved_up_to).is_some() {
            self.prune();
        }
        if self.added_since_sweep < MIN_NEW_BEFORE_SWEEP.max(self.live.len() / 2) {
            return;
        }
        self.added_since_sweep = 0;
        let absent = self.live.values().filter(|code| code.isolate != OF_PROCESS && !may_be_present(code));
        let absent: Vec<(usize, u64)> = absent.map(|code| (code.start, code.added_at)).collect();
        let position = position();
        self.missing.extend(absent.into_iter().map(|(start, added_at)| MissingCode { start, added_at, position }));
        self.prune_position.get_or_insert(position);
        if self.live_bytes > MAX_CODE_BYTES {
            self.evict_oldest(position, ended);
        }
    }

    /// Drops names, tables and scripts that no code refers to.
    fn prune(&mut self) {
        let mut referenced = HashSet::new();
        for code in self.live.values().map(Box::as_ref).chain(self.retired.values()) {
            referenced.insert(code.script);
            referenced.extend(code.inlining.iter().flat_map(|inlining| inlining.scripts()));
        }
        referenced.extend(self.existing.scripts());
        self.scripts.drop_unreferenced(&referenced);
        // Scripts refer to names and tables.
        self.names.retain(|_, name| Arc::strong_count(name) > 1);
        self.tables.retain(|lines| Arc::strong_count(lines) > 1);
    }

    fn evict_oldest(&mut self, position: u64, ended: &mut Vec<EndedCode>) {
        let evictable = self.live.values().filter(|code| code.isolate != OF_PROCESS);
        let mut by_age: Vec<(u64, usize)> = evictable.map(|code| (code.added_at, code.start)).collect();
        by_age.sort_unstable();
        for (_, start) in by_age {
            if self.live_bytes <= MAX_CODE_BYTES / 4 * 3 {
                break;
            }
            self.end(start, position, ended);
            self.codes_forgotten += 1;
        }
    }

    /// Another ring is in use: live code precedes its first position.
    fn reset_positions(&mut self) {
        self.live.values_mut().for_each(|code| code.added_at = 0);
        self.scripts.reset_positions();
        self.retired.clear();
        self.existing.reset_positions();
        self.moving.clear();
        self.prune_position = self.prune_position.map(|_| 0);
    }

    /// Applies one event; appends the code ranges that it ended.
    pub fn apply(&mut self, event: CodeEvent, ended: &mut Vec<EndedCode>) {
        let CodeEvent { ring, position, isolate, change } = event;
        let position = if ring == self.ring { position } else { 0 };
        match change {
            CodeChange::Lines { start, positions } => {
                self.add_pending_lines(start, LineTable::decoded(positions.as_slice()))
            }
            CodeChange::Table { start, len, encoding, bytes } => {
                let lines = LineTable::encoded(encoding, bytes.into(), len);
                let lines = self.tables.get(&lines).cloned().unwrap_or_else(|| {
                    self.tables.insert(lines.clone());
                    lines
                });
                self.add_pending_lines(start, lines);
            }
            CodeChange::Baseline { start, len, baseline } => {
                if let Some(positions) = baseline.positions(len, self.bytecode_sizes()) {
                    self.add_pending_lines(start, LineTable::decoded(positions));
                }
            }
            CodeChange::Script { number, mut info } => {
                // What stays is this thread's memory: the blocks of the program's thread return to it, next to the queue's.
                info.line_starts = info.line_starts.clone();
                self.scripts.add(number, isolate, *info);
            }
            CodeChange::Added { start, len, logged, kind, script, inlining, map_word } => {
                if kind == CodeKind::Bytecode {
                    self.take_existing(isolate, start..start.saturating_add(len), ended);
                }
                let name = self.name(logged.as_str());
                let same = |code: &CodeObject| code.len == len && code.isolate == isolate && code.name == name;
                if [OF_PROCESS, OF_MODULE].contains(&isolate)
                    && self.live.get(&start).map(Box::as_ref).is_some_and(same)
                {
                    return;
                }
                let lines = self.pending.remove(&start).unwrap_or_else(|| self.no_lines.clone());
                if kind == CodeKind::Bytecode {
                    self.scripts.add_function(script, &name, &lines);
                }
                let inlining = inlining.map(|inlining| Arc::from(*inlining));
                let added_at = position;
                self.added_since_sweep += 1;
                self.insert(
                    CodeObject { start, len, isolate, name, script, kind, lines, inlining, map_word, added_at },
                    ended,
                );
            }
            CodeChange::Existing { functions, map_word } => self.existing.add(isolate, functions, map_word, position),
            CodeChange::Unlisted { start, len, bytecode, kind, inlining } => {
                self.take_existing(isolate, bytecode..bytecode + 1, ended);
                let function =
                    self.live.get(&bytecode).filter(|code| code.kind == CodeKind::Bytecode && code.isolate == isolate);
                let Some((name, script)) = function.map(|function| (function.name.clone(), function.script)) else {
                    return;
                };
                let inlining = inlining.map(|inlining| Arc::from(*inlining));
                let lines = self.pending.remove(&start).unwrap_or_else(|| self.no_lines.clone());
                let (map_word, added_at) = (None, position);
                let code = CodeObject { start, len, isolate, name, script, kind, lines, inlining, map_word, added_at };
                self.insert(code, ended);
            }
            CodeChange::Moved { from, to, keeps_old_address } => {
                self.take_existing(isolate, from..from + 1, ended);
                let ended_at = if keeps_old_address { NO_END } else { position };
                let Some(code) = self.end(from, ended_at, ended) else { return };
                if keeps_old_address {
                    self.moving.push((isolate, from));
                }
                self.insert(CodeObject { start: to, added_at: position, ..code }, ended);
            }
            CodeChange::CollectionEnded => self.end_collection(isolate, position, ended),
            CodeChange::Removed { start } => {
                self.take_existing(isolate, start..start + 1, ended);
                self.end(start, position, ended);
            }
            CodeChange::IsolateCleared => {
                self.end_collection(isolate, position, ended);
                self.scripts.end_isolate(isolate, position);
                self.existing.end(isolate, position);
                for start in self.by_isolate.remove(&isolate).unwrap_or_default() {
                    self.end(start, position, ended);
                }
            }
        }
    }

    /// Adds the functions of a running worker that overlap `range`.
    fn take_existing(&mut self, isolate: usize, range: Range<usize>, ended: &mut Vec<EndedCode>) {
        let taken = self.existing.take_overlapping(isolate, &range);
        taken.into_iter().for_each(|function| self.add_taken(function, ended));
    }

    fn add_taken(&mut self, function: TakenFunction, ended: &mut Vec<EndedCode>) {
        let TakenFunction { isolate, start, script, known, map_word, added_at, ended_at } = function;
        let (name, lines) = (self.name(&known.logged), known.lines.clone());
        self.scripts.add_function(script, &name, &lines);
        let (len, kind, inlining) = (known.len, CodeKind::Bytecode, None);
        let code = CodeObject { start, len, isolate, name, script, kind, lines, inlining, map_word, added_at };
        match ended_at {
            NO_END => self.insert(code, ended),
            _ => self.retired.insert(code.into(), ended_at),
        }
    }

    /// Adds what a sample refers to: the function at `address`, and the scripts whose functions are inlined there.
    fn take_sampled(&mut self, address: usize, position: u64) {
        // Code that is not added yet has no resolved frames that could end.
        let ended = &mut Vec::new();
        let Some(code) = self.find(address, position) else {
            let mut take = |address: usize| self.existing.take_at(address, position);
            if let Some(function) = take(address).or_else(|| take(address.checked_add(1)?)) {
                self.add_taken(function, ended);
            }
            return;
        };
        let Some(inlining) = &code.inlining else { return };
        let isolate = code.isolate;
        let scripts: BTreeSet<u32> = inlining.scripts().chain([code.script]).filter(|script| *script != 0).collect();
        for script in scripts {
            let taken = self.existing.take_script(isolate, script);
            taken.into_iter().for_each(|function| self.add_taken(function, ended));
        }
    }

    /// Stores a line table until its code is added.
    fn add_pending_lines(&mut self, start: usize, lines: Arc<LineTable>) {
        if self.pending.len() >= MAX_PENDING_TABLES {
            self.pending.clear();
        }
        self.pending.insert(start, lines);
    }

    fn bytecode_sizes(&mut self) -> Option<&BytecodeSizes> {
        self.bytecode_sizes.get_or_insert_with(BytecodeSizes::find).as_ref()
    }

    fn name(&mut self, logged: &str) -> Arc<CodeName> {
        if let Some(known) = self.names.get(logged) {
            return known.clone();
        }
        let mut name = crate::positions::names::parse(logged);
        if name.file == self.last_file {
            name.file = self.last_file.clone()
        } else {
            self.last_file = name.file.clone()
        }
        let name = Arc::new(name);
        self.names.insert(logged.into(), name.clone());
        name
    }

    fn insert(&mut self, code: CodeObject, ended: &mut Vec<EndedCode>) {
        let end = code.start.saturating_add(code.len);
        while let Some((&start, _)) =
            self.live.range(..end).next_back().filter(|(start, old)| *start + old.len > code.start)
        {
            self.end(start, code.added_at, ended);
        }
        self.live_bytes += code.bytes();
        self.by_isolate.entry(code.isolate).or_default().insert(code.start);
        self.live.insert(code.start, code.into());
    }

    fn end(&mut self, start: usize, position: u64, ended: &mut Vec<EndedCode>) -> Option<CodeObject> {
        let code = self.live.remove(&start)?;
        if let Some(starts) = self.by_isolate.get_mut(&code.isolate) {
            starts.remove(&start);
        }
        self.live_bytes = self.live_bytes.saturating_sub(code.bytes());
        if position != NO_END {
            report_ended(&code, position, ended);
        }
        let ended_code = CodeObject::clone(&code);
        self.retired.insert(code, position);
        Some(ended_code)
    }

    /// The collection is over: no stack contains an old address any more.
    fn end_collection(&mut self, isolate: usize, position: u64, ended: &mut Vec<EndedCode>) {
        for (_, start) in self.moving.extract_if(.., |(of, _)| *of == isolate) {
            if let Some(code) = self.retired.remove_unended(start) {
                report_ended(&code, position, ended);
                self.retired.insert(code, position);
            }
        }
    }

    /// The code at `address` for a sample at `position`.
    pub fn find(&self, address: usize, position: u64) -> Option<&CodeObject> {
        let live = self.live.range(..=address).next_back().map(|(_, code)| &**code);
        live.filter(|code| code.contains(address, position)).or_else(|| self.retired.find(address, position))
    }

    /// The bytecode of a function at its entry, where the bytecode offset points to the byte before the first one.
    fn at_function_entry(&self, address: usize, position: u64) -> Option<&CodeObject> {
        let first = address.checked_add(1)?;
        self.find(first, position).filter(|code| code.start == first && code.kind == CodeKind::Bytecode)
    }

    /// The frames of `address` for a sample at `position`, innermost first; none for unknown code.
    pub fn frames(&mut self, address: usize, position: u64, out: &mut Vec<Frame>) {
        self.take_sampled(address, position);
        let Some(code) = self.find(address, position).or_else(|| self.at_function_entry(address, position)).cloned()
        else {
            return;
        };
        let location = CodeLocation {
            name: &code.name,
            script: code.script,
            positions: code.lines.positions(),
            inlining: code.inlining.as_deref(),
            is_optimized: code.kind == CodeKind::Optimized,
            offset: u32::try_from(address.saturating_sub(code.start)).unwrap_or(u32::MAX),
        };
        self.scripts.frames(&location, out);
    }

    /// Number of live code objects.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Memory of live code in bytes.
    pub fn bytes(&self) -> usize {
        self.live_bytes
    }
}

/// Appends the pages of code that ended.
fn report_ended(code: &CodeObject, position: u64, ended: &mut Vec<EndedCode>) {
    let first = code.start & !(PAGE - 1);
    ended.extend((first..code.start + code.len).step_by(PAGE).map(|page| EndedCode { code: page as u64, position }));
}

#[cfg(test)]
#[path = "code_map_tests.rs"]
mod tests;
