//! Which code lay where, and when: every piece has the ring position at which it was born and, once its addresses were
//! used again, at which it died. A sample finds what lay there at its own position. Owned by the drain; pure.
//!
//! Line tables belong to their code: pairs of an offset in the code and an offset in the script, sorted.

use std::collections::BTreeMap;
use std::sync::Arc;

use spanprof::runtime::{Ended, Frame};

use super::names::CodeName;
use super::operation_sizes::OperationSizes;
use crate::positions::{At, Baseline, Form, Inlining, Position, ScriptFacts, Scripts};

/// One thing that happened to code, as an isolate's thread saw it.
#[derive(Debug)]
pub struct CodeEvent {
    /// Ring position when it happened.
    pub position: u64,
    /// 0 for built-in code, which is the process's: each isolate lists it, none takes it along.
    pub isolate: usize,
    pub change: Change,
}

#[derive(Debug)]
pub enum Change {
    Added {
        start: usize,
        len: usize,
        logged: Box<str>,
        kind: Kind,
        /// Number of its script; 0 unknown.
        script: u32,
        inlining: Option<Box<Inlining>>,
    },
    /// As `Lines`, not yet decoded.
    Table {
        start: usize,
        len: usize,
        form: Form,
        bytes: Box<[u8]>,
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
        positions: Box<[Position]>,
    },
    Moved {
        from: usize,
        to: usize,
    },
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
    pub positions: Arc<[Position]>,
    pub inlining: Option<Arc<Inlining>>,
    born: u64,
}

struct Dead {
    code: Code,
    died: u64,
    generation: u64,
}

/// Calls of `ended` after which no sample of dead code waits in the ring: each call is a drain to the ring's head, unless
/// the window was full.
const KEPT_GENERATIONS: u64 = 8;
/// Line tables that wait for their code.
const MAX_PENDING: usize = 4096;
const PAGE: usize = 4096;
const OF_PROCESS: usize = 0;

/// See the head of the module.
#[derive(Default)]
pub struct CodeMap {
    live: BTreeMap<usize, Code>,
    dead: Vec<Dead>,
    pending: BTreeMap<usize, Box<[Position]>>,
    names: BTreeMap<Box<str>, Arc<CodeName>>,
    generation: u64,
    pub scripts: Scripts,
    /// How long the operations of byte code are; looked for when first needed.
    sizes: Option<Option<OperationSizes>>,
}

impl CodeMap {
    /// Begins a drain: forgets what no sample can ask for any more.
    pub fn begin(&mut self) {
        self.generation += 1;
        self.scripts.begin();
        let generation = self.generation;
        self.dead.retain(|dead| dead.generation + KEPT_GENERATIONS > generation);
    }

    /// The ring's positions begin anew: what lives now lay there before them.
    pub fn positions_begin_anew(&mut self) {
        self.live.values_mut().for_each(|code| code.born = 0);
        self.dead.clear();
    }

    /// Takes one event; tells what ended by it.
    pub fn apply(&mut self, event: CodeEvent, ended: &mut Vec<Ended>) {
        let CodeEvent { position, isolate, change } = event;
        match change {
            Change::Lines { start, positions } => self.expect(start, positions),
            Change::Table { start, len, form, bytes } => {
                if let Some(positions) = form.positions(&bytes, len) {
                    self.expect(start, positions);
                }
            }
            Change::Baseline { start, len, baseline } => {
                if let Some(positions) = baseline.positions(len, self.sizes()) {
                    self.expect(start, positions);
                }
            }
            Change::Script { number, facts } => self.scripts.introduce(number, isolate, *facts),
            Change::Added { start, len, logged, kind, script, inlining } => {
                let name = self.name(logged);
                let same = |code: &Code| code.len == len && code.isolate == OF_PROCESS && code.name == name;
                if isolate == OF_PROCESS && self.live.get(&start).is_some_and(same) {
                    return;
                }
                let positions = self.pending.remove(&start).unwrap_or_default().into();
                if kind == Kind::ByteCode {
                    self.scripts.function(script, &name, &positions);
                }
                let inlining = inlining.map(|inlining| Arc::from(*inlining));
                let code = Code { start, len, isolate, name, script, kind, positions, inlining, born: position };
                self.insert(code, ended);
            }
            Change::Moved { from, to } => {
                let Some(code) = self.end(from, position, ended) else { return };
                self.insert(Code { start: to, born: position, ..code }, ended);
            }
            Change::Removed { start } => {
                self.end(start, position, ended);
            }
            Change::Forgotten => {
                self.scripts.end(isolate);
                let starts: Vec<usize> =
                    self.live.values().filter(|code| code.isolate == isolate).map(|code| code.start).collect();
                for start in starts {
                    self.end(start, position, ended);
                }
            }
        }
    }

    /// A line table whose code is to come.
    fn expect(&mut self, start: usize, positions: Box<[Position]>) {
        if self.pending.len() >= MAX_PENDING {
            self.pending.clear();
        }
        self.pending.insert(start, positions);
    }

    fn sizes(&mut self) -> Option<&OperationSizes> {
        self.sizes.get_or_insert_with(OperationSizes::find).as_ref()
    }

    fn name(&mut self, logged: Box<str>) -> Arc<CodeName> {
        if let Some(known) = self.names.get(&logged) {
            return known.clone();
        }
        let name = Arc::new(super::names::parse(&logged));
        self.names.insert(logged, name.clone());
        name
    }

    fn insert(&mut self, code: Code, ended: &mut Vec<Ended>) {
        let end = code.start.saturating_add(code.len);
        while let Some((&start, _)) =
            self.live.range(..end).next_back().filter(|(start, old)| *start + old.len > code.start)
        {
            self.end(start, code.born, ended);
        }
        self.live.insert(code.start, code);
    }

    fn end(&mut self, start: usize, position: u64, ended: &mut Vec<Ended>) -> Option<Code> {
        let code = self.live.remove(&start)?;
        let first = start & !(PAGE - 1);
        ended.extend((first..start + code.len).step_by(PAGE).map(|page| Ended { code: page as u64, position }));
        self.dead.push(Dead { code: code.clone(), died: position, generation: self.generation });
        Some(code)
    }

    /// The code that lay at `address` for a sample at `position`.
    pub fn find(&self, address: usize, position: u64) -> Option<&Code> {
        let holds = |code: &Code| address >= code.start && address - code.start < code.len && code.born <= position;
        let live = self.live.range(..=address).next_back().map(|(_, code)| code).filter(|code| holds(code));
        live.or_else(|| {
            self.dead.iter().rev().find(|dead| holds(&dead.code) && position < dead.died).map(|dead| &dead.code)
        })
    }

    /// The frames of `address` for a sample at `position`, innermost first; none when the code is not known.
    pub fn frames(&mut self, address: usize, position: u64, out: &mut Vec<Frame>) {
        let Some(code) = self.find(address, position).cloned() else { return };
        let at = At {
            name: &code.name,
            script: code.script,
            positions: &code.positions,
            inlining: code.inlining.as_deref(),
            is_optimised: code.kind == Kind::Optimised,
            offset: u32::try_from(address - code.start).unwrap_or(u32::MAX),
        };
        self.scripts.frames(&at, out);
    }

    /// Pieces of code alive.
    pub fn len(&self) -> usize {
        self.live.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(position: u64, start: usize, name: &str) -> CodeEvent {
        CodeEvent {
            position,
            isolate: 1,
            change: Change::Added {
                start,
                len: 100,
                logged: name.into(),
                kind: Kind::Other,
                script: 0,
                inlining: None,
            },
        }
    }

    fn name_at(map: &CodeMap, address: usize, position: u64) -> Option<&str> {
        map.find(address, position).map(|code| &*code.name.function)
    }

    #[test]
    fn an_address_means_what_lay_there_when_the_sample_was_taken() {
        let (mut map, mut ended) = (CodeMap::default(), Vec::new());
        map.apply(added(10, 5000, "Builtin:first"), &mut ended);
        assert!(ended.is_empty(), "new ground ends nothing");
        map.apply(added(20, 5050, "Builtin:second"), &mut ended);
        assert_eq!(ended, [Ended { code: 4096, position: 20 }]);
        assert_eq!(name_at(&map, 5060, 15), Some("first"));
        assert_eq!(name_at(&map, 5060, 20), Some("second"));
        assert_eq!(name_at(&map, 5060, 5), None, "before it was born");
        assert_eq!(name_at(&map, 5020, 25), None, "the rest of the first is gone too");
    }

    #[test]
    fn code_that_lives_on_over_a_restart_is_found_at_any_position() {
        let (mut map, mut ended) = (CodeMap::default(), Vec::new());
        map.apply(added(900, 8192, "Builtin:old"), &mut ended);
        map.positions_begin_anew();
        assert_eq!(name_at(&map, 8200, 3), Some("old"));
    }

    #[test]
    fn code_that_moved_is_found_at_both_places_in_its_time() {
        let (mut map, mut ended) = (CodeMap::default(), Vec::new());
        map.apply(added(1, 8192, "Builtin:mover"), &mut ended);
        let change = Change::Moved { from: 8192, to: 90_000 };
        map.apply(CodeEvent { position: 7, isolate: 1, change }, &mut ended);
        assert_eq!((name_at(&map, 8200, 6), name_at(&map, 8200, 7)), (Some("mover"), None));
        assert_eq!((name_at(&map, 90_010, 6), name_at(&map, 90_010, 7)), (None, Some("mover")));
    }

    #[test]
    fn what_died_is_forgotten_after_some_drains_and_an_isolate_takes_its_code_along() {
        let (mut map, mut ended) = (CodeMap::default(), Vec::new());
        map.apply(added(1, 8192, "RegExp:gone"), &mut ended);
        map.apply(CodeEvent { position: 5, isolate: 1, change: Change::Forgotten }, &mut ended);
        assert_eq!(map.len(), 0);
        assert_eq!(name_at(&map, 8192, 4), Some("(regexp) gone"));
        (0..KEPT_GENERATIONS).for_each(|_| map.begin());
        assert_eq!(name_at(&map, 8192, 4), None);
    }

    #[test]
    fn built_in_code_stays_when_an_isolate_that_logged_it_ends() {
        let (mut map, mut ended) = (CodeMap::default(), Vec::new());
        for position in [1, 3] {
            let event = CodeEvent { isolate: OF_PROCESS, ..added(position, 8192, "Builtin:Shared") };
            map.apply(event, &mut ended);
        }
        map.apply(CodeEvent { position: 5, isolate: 2, change: Change::Forgotten }, &mut ended);
        assert!(ended.is_empty());
        assert_eq!(name_at(&map, 8200, 6), Some("Shared"));
    }

    #[test]
    fn a_line_table_comes_before_its_code() {
        let (mut map, mut ended) = (CodeMap::default(), Vec::new());
        let change = Change::Lines { start: 8192, positions: [(0, 7), (10, 9)].into() };
        map.apply(CodeEvent { position: 1, isolate: 1, change }, &mut ended);
        map.apply(added(1, 8192, "JS:*f /a.js:1:1"), &mut ended);
        assert_eq!(*map.find(8192, 1).unwrap().positions, [(0, 7), (10, 9)]);
    }
}
