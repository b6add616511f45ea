//! Which code lay where, and when: every piece has the ring position at which it was born and, once its addresses were
//! used again, at which it died. A sample finds what lay there at its own position. Owned by the drain; pure.
//!
//! Line tables belong to their code: pairs of an offset in the code and an offset in the script, sorted.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use spanprof::runtime::{Ended, Frame};

use super::dead_code::{DeadCode, NOT_YET};
use super::names::CodeName;
use super::operation_sizes::OperationSizes;
use super::told::{Bytes, Places, Text};
use crate::positions::{At, Baseline, Form, Inlining, LineTable, ScriptFacts, Scripts};

/// One thing that happened to code, as an isolate's thread saw it.
#[derive(Debug)]
pub struct CodeEvent {
    /// The ring, and its position, when it happened. A position in another ring lies before all of the present one.
    pub ring: usize,
    pub position: u64,
    /// Or `OF_PROCESS`, `OF_MODULE`.
    pub isolate: usize,
    pub change: Change,
}

#[derive(Debug)]
pub enum Change {
    Added {
        start: usize,
        len: usize,
        logged: Text,
        kind: Kind,
        /// Number of its script; 0 unknown.
        script: u32,
        inlining: Option<Box<Inlining>>,
        /// Of byte code: how far before it the word lies that says what kind of object it is in, and that word.
        kind_word: Option<(usize, u64)>,
    },
    /// Optimised code that V8 did not list, and the byte code of its function, which it did.
    Unlisted {
        start: usize,
        len: usize,
        byte_code: usize,
        inlining: Option<Box<Inlining>>,
    },
    /// As `Lines`, not yet decoded.
    Table {
        start: usize,
        len: usize,
        form: Form,
        bytes: Bytes,
    },
    /// As `Lines`, of code that follows its byte code.
    Baseline {
        start: usize,
        len: usize,
        baseline: Box<Baseline>,
    },
    /// Comes before the code of this script.
    Script {
        number: u32,
        facts: Box<ScriptFacts>,
    },
    /// Comes before the `Added` of the same address.
    Lines {
        start: usize,
        positions: Places,
    },
    Moved {
        from: usize,
        to: usize,
        /// A collection moved it: until `Settled`, stacks may still have its old address.
        stays_seen: bool,
    },
    /// The isolate's collection is over.
    Settled,
    Removed {
        start: usize,
    },
    /// The isolate ends, or logs all its code anew.
    Forgotten,
}

/// What its places mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    ByteCode,
    /// Machine code that follows the byte code, operation by operation.
    Baseline,
    /// Machine code that may hold several functions.
    Optimised,
    Other,
}

impl Kind {
    /// By the mark of the tier in the logged name.
    pub fn of(logged: &str, is_byte_code: bool) -> Self {
        let name = logged.split_once(':').map_or("", |(_, name)| name);
        match is_byte_code {
            true => Self::ByteCode,
            false if ["*", "+", "o*", "o+"].iter().any(|mark| name.starts_with(mark)) => Self::Optimised,
            false if name.starts_with('^') => Self::Baseline,
            false => Self::Other,
        }
    }
}

/// A piece of code.
#[derive(Clone, Debug)]
pub struct Code {
    pub start: usize,
    pub len: usize,
    pub isolate: usize,
    pub name: Arc<CodeName>,
    /// Number of the script among those the process saw; 0 unknown.
    pub script: u32,
    pub kind: Kind,
    pub lines: Arc<LineTable>,
    pub inlining: Option<Arc<Inlining>>,
    kind_word: Option<(usize, u64)>,
    born: u64,
}

impl Code {
    pub fn holds(&self, address: usize, position: u64) -> bool {
        address >= self.start && address - self.start < self.len && self.born <= position
    }

    /// Whether memory, as `read` finds it, may still hold this code. Byte code leaves its memory to other objects, which
    /// nobody tells of; the memory of machine code goes to other machine code or away. Byte code itself is no mark: newer
    /// versions write feedback into it.
    fn may_be_there(&self, read: &dyn Fn(usize) -> Option<u64>) -> bool {
        match self.kind_word {
            Some((before, word)) => read(self.start.wrapping_sub(before)) == Some(word),
            None => read(self.start).is_some(),
        }
    }

    /// Memory held.
    fn bytes(&self) -> usize {
        let inlining = self.inlining.as_ref().map_or(0, |inlining| inlining.bytes());
        CODE_BYTES + self.lines.bytes() + inlining
    }
}

/// Code that was not to be found where it should be.
struct Suspect {
    start: usize,
    born: u64,
    /// Position of the ring after the look.
    position: u64,
}

/// What a piece of code takes beside its places.
const CODE_BYTES: usize = 240;
/// Memory for code; what came longest ago goes first.
const MAX_CODE_BYTES: usize = 128 << 20;
/// New pieces of code before all are looked at.
const FEWEST_BEFORE_LOOK: usize = 2048;
/// Line tables that wait for their code.
const MAX_PENDING: usize = 4096;
const PAGE: usize = 4096;
/// Stand for the isolate of code that several have: built-in code, and that of a module of WebAssembly. Each isolate tells of
/// it, none takes it along.
pub const OF_PROCESS: usize = 0;
pub const OF_MODULE: usize = usize::MAX;

/// See the head of the module.
#[derive(Default)]
pub struct CodeMap {
    live: BTreeMap<usize, Code>,
    live_bytes: usize,
    /// Isolates, and where their code lies: each takes it along when it ends.
    of_isolates: BTreeSet<(usize, usize)>,
    dead: DeadCode,
    /// Isolates and old places of code that a collection under way has moved: dead, but for now without end.
    unsettled: Vec<(usize, usize)>,
    suspects: Vec<Suspect>,
    /// New since all code was looked at.
    new: usize,
    pub codes_forgotten: u64,
    /// Position up to which samples must be named before names and scripts without code are forgotten.
    prune_at: Option<u64>,
    pending: BTreeMap<usize, Arc<LineTable>>,
    /// Of all code without a table.
    no_lines: Arc<LineTable>,
    names: HashMap<Box<str>, Arc<CodeName>>,
    /// Of the name that came last: the next is mostly of the same one.
    last_file: Arc<str>,
    /// The ring that positions are of, and up to where its samples have been named.
    ring: usize,
    named_up_to: u64,
    pub scripts: Scripts,
    /// How long the operations of byte code are; looked for when first needed.
    sizes: Option<Option<OperationSizes>>,
}

impl CodeMap {
    /// Begins a drain of a ring: forgets what no sample at `named_up_to` or behind it can ask for.
    pub fn begin(&mut self, ring: usize, named_up_to: u64) {
        if std::mem::replace(&mut self.ring, ring) != ring {
            self.positions_begin_anew();
        }
        self.named_up_to = named_up_to;
        self.scripts.begin(named_up_to);
        self.dead.expire(named_up_to);
    }

    /// Ends a drain: forgets code that is gone though nobody told so, names and scripts that no code has. Looks at all code
    /// once for so many new pieces. `read` reads a word of memory; `position` asks for the ring's position.
    pub fn tidy(&mut self, read: &dyn Fn(usize) -> Option<u64>, position: &dyn Fn() -> u64, ended: &mut Vec<Ended>) {
        // What was moving when it was looked at has been told of by now.
        for Suspect { start, born, position } in std::mem::take(&mut self.suspects) {
            if self.live.get(&start).is_some_and(|code| code.born == born) {
                self.end(start, position, ended);
                self.codes_forgotten += 1;
                // When the dead ones are gone too.
                self.prune_at.get_or_insert(position);
            }
        }
        if self.prune_at.take_if(|position| *position <= self.named_up_to).is_some() {
            self.prune();
        }
        if self.new < FEWEST_BEFORE_LOOK.max(self.live.len() / 2) {
            return;
        }
        self.new = 0;
        let gone = self.live.values().filter(|code| code.isolate != OF_PROCESS && !code.may_be_there(read));
        let gone: Vec<(usize, u64)> = gone.map(|code| (code.start, code.born)).collect();
        let position = position();
        self.suspects.extend(gone.into_iter().map(|(start, born)| Suspect { start, born, position }));
        if self.live_bytes > MAX_CODE_BYTES {
            self.forget_oldest(position, ended);
        }
    }

    /// Forgets names and scripts that no code has.
    fn prune(&mut self) {
        self.names.retain(|_, name| Arc::strong_count(name) > 1);
        let mut asked = HashSet::new();
        for code in self.live.values().chain(self.dead.values()) {
            asked.insert(code.script);
            asked.extend(code.inlining.iter().flat_map(|inlining| inlining.scripts()));
        }
        self.scripts.forget_others(&asked);
    }

    fn forget_oldest(&mut self, position: u64, ended: &mut Vec<Ended>) {
        let of_isolates = self.live.values().filter(|code| code.isolate != OF_PROCESS);
        let mut by_age: Vec<(u64, usize)> = of_isolates.map(|code| (code.born, code.start)).collect();
        by_age.sort_unstable();
        for (_, start) in by_age {
            if self.live_bytes <= MAX_CODE_BYTES / 4 * 3 {
                break;
            }
            self.end(start, position, ended);
            self.codes_forgotten += 1;
        }
        self.prune_at.get_or_insert(position);
    }

    /// What lives now lay there before the first position of another ring.
    fn positions_begin_anew(&mut self) {
        self.live.values_mut().for_each(|code| code.born = 0);
        self.scripts.positions_begin_anew();
        self.dead.clear();
        self.unsettled.clear();
        self.prune_at = self.prune_at.map(|_| 0);
    }

    /// Takes one event; tells what ended by it.
    pub fn apply(&mut self, event: CodeEvent, ended: &mut Vec<Ended>) {
        let CodeEvent { ring, position, isolate, change } = event;
        let position = if ring == self.ring { position } else { 0 };
        match change {
            Change::Lines { start, positions } => self.expect(start, LineTable::decoded(positions.as_slice())),
            Change::Table { start, len, form, bytes } => {
                self.expect(start, LineTable::encoded(form, bytes.into(), len))
            }
            Change::Baseline { start, len, baseline } => {
                if let Some(positions) = baseline.positions(len, self.sizes()) {
                    self.expect(start, LineTable::decoded(positions));
                }
            }
            Change::Script { number, facts } => self.scripts.introduce(number, isolate, *facts),
            Change::Added { start, len, logged, kind, script, inlining, kind_word } => {
                let name = self.name(logged.as_str());
                let same = |code: &Code| code.len == len && code.isolate == isolate && code.name == name;
                if [OF_PROCESS, OF_MODULE].contains(&isolate) && self.live.get(&start).is_some_and(same) {
                    return;
                }
                let lines = self.pending.remove(&start).unwrap_or_else(|| self.no_lines.clone());
                if kind == Kind::ByteCode {
                    self.scripts.function(script, &name, &lines);
                }
                let inlining = inlining.map(|inlining| Arc::from(*inlining));
                let born = position;
                self.new += 1;
                self.insert(Code { start, len, isolate, name, script, kind, lines, inlining, kind_word, born }, ended);
            }
            Change::Unlisted { start, len, byte_code, inlining } => {
                let of = self.live.get(&byte_code).filter(|of| of.kind == Kind::ByteCode && of.isolate == isolate);
                let Some((name, script)) = of.map(|of| (of.name.clone(), of.script)) else { return };
                let inlining = inlining.map(|inlining| Arc::from(*inlining));
                let (kind, lines, kind_word, born) = (Kind::Optimised, self.no_lines.clone(), None, position);
                let code = Code { start, len, isolate, name, script, kind, lines, inlining, kind_word, born };
                self.insert(code, ended);
            }
            Change::Moved { from, to, stays_seen } => {
                let died = if stays_seen { NOT_YET } else { position };
                let Some(code) = self.end(from, died, ended) else { return };
                if stays_seen {
                    self.unsettled.push((isolate, from));
                }
                self.insert(Code { start: to, born: position, ..code }, ended);
            }
            Change::Settled => self.settle(isolate, position, ended),
            Change::Removed { start } => {
                self.end(start, position, ended);
            }
            Change::Forgotten => {
                self.settle(isolate, position, ended);
                self.scripts.end(isolate, position);
                let own = self.of_isolates.range((isolate, 0)..=(isolate, usize::MAX));
                let starts: Vec<usize> = own.map(|(_, start)| *start).collect();
                for start in starts {
                    self.end(start, position, ended);
                }
            }
        }
    }

    /// A line table whose code is to come.
    fn expect(&mut self, start: usize, lines: Arc<LineTable>) {
        if self.pending.len() >= MAX_PENDING {
            self.pending.clear();
        }
        self.pending.insert(start, lines);
    }

    fn sizes(&mut self) -> Option<&OperationSizes> {
        self.sizes.get_or_insert_with(OperationSizes::find).as_ref()
    }

    fn name(&mut self, logged: &str) -> Arc<CodeName> {
        if let Some(known) = self.names.get(logged) {
            return known.clone();
        }
        let mut name = super::names::parse(logged);
        match name.file == self.last_file {
            true => name.file = self.last_file.clone(),
            false => self.last_file = name.file.clone(),
        }
        let name = Arc::new(name);
        self.names.insert(logged.into(), name.clone());
        name
    }

    fn insert(&mut self, code: Code, ended: &mut Vec<Ended>) {
        let end = code.start.saturating_add(code.len);
        while let Some((&start, _)) =
            self.live.range(..end).next_back().filter(|(start, old)| *start + old.len > code.start)
        {
            self.end(start, code.born, ended);
        }
        self.live_bytes += code.bytes();
        self.of_isolates.insert((code.isolate, code.start));
        self.live.insert(code.start, code);
    }

    fn end(&mut self, start: usize, position: u64, ended: &mut Vec<Ended>) -> Option<Code> {
        let code = self.live.remove(&start)?;
        self.of_isolates.remove(&(code.isolate, start));
        self.live_bytes = self.live_bytes.saturating_sub(code.bytes());
        if position != NOT_YET {
            tell_ended(&code, position, ended);
        }
        self.dead.insert(code.clone(), position);
        Some(code)
    }

    /// The collection is over: nobody has an old address any more.
    fn settle(&mut self, isolate: usize, position: u64, ended: &mut Vec<Ended>) {
        for (_, start) in self.unsettled.extract_if(.., |(of, _)| *of == isolate) {
            if let Some(code) = self.dead.remove_unended(start) {
                tell_ended(&code, position, ended);
                self.dead.insert(code, position);
            }
        }
    }

    /// The code that lay at `address` for a sample at `position`.
    pub fn find(&self, address: usize, position: u64) -> Option<&Code> {
        let live = self.live.range(..=address).next_back().map(|(_, code)| code);
        live.filter(|code| code.holds(address, position)).or_else(|| self.dead.find(address, position))
    }

    /// The byte code of a function that is just being entered: it stands one byte before its first.
    fn at_entry(&self, address: usize, position: u64) -> Option<&Code> {
        let first = address.checked_add(1)?;
        self.find(first, position).filter(|code| code.start == first && code.kind == Kind::ByteCode)
    }

    /// The frames of `address` for a sample at `position`, innermost first; none when the code is not known.
    pub fn frames(&mut self, address: usize, position: u64, out: &mut Vec<Frame>) {
        let Some(code) = self.find(address, position).or_else(|| self.at_entry(address, position)).cloned() else {
            return;
        };
        let at = At {
            name: &code.name,
            script: code.script,
            positions: code.lines.positions(),
            inlining: code.inlining.as_deref(),
            is_optimised: code.kind == Kind::Optimised,
            offset: u32::try_from(address.saturating_sub(code.start)).unwrap_or(u32::MAX),
        };
        self.scripts.frames(&at, out);
    }

    /// Pieces of code alive.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Memory held for code alive.
    pub fn bytes(&self) -> usize {
        self.live_bytes
    }
}

/// The pages of code that is no longer there.
fn tell_ended(code: &Code, position: u64, ended: &mut Vec<Ended>) {
    let first = code.start & !(PAGE - 1);
    ended.extend((first..code.start + code.len).step_by(PAGE).map(|page| Ended { code: page as u64, position }));
}

#[cfg(test)]
#[path = "code_map_tests.rs"]
mod tests;
