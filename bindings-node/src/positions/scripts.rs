//! The scripts of the process: where their lines begin, which functions they hold, their source maps. A map is read when a
//! frame of its script is first named. Owned by the drain thread.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use spanprof::runtime::{Frame, FrameType};

use super::inlining::Step;
use super::{script_offset, Inlining, LineTable, Position, NOWHERE};
use crate::runtime::CodeName;
use crate::source_map::{self, Limits, Origin, SourceMap};

/// Tells the JavaScript thread whether its description of a script is still held.
#[derive(Debug, Default)]
pub struct Held(Arc<AtomicBool>);

impl Held {
    /// One to go with the description, and what to ask.
    pub fn new() -> (Self, Arc<AtomicBool>) {
        let flag = Arc::new(AtomicBool::new(true));
        (Self(flag.clone()), flag)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// What the JavaScript thread tells of a script.
#[derive(Debug, Default)]
pub struct ScriptFacts {
    /// A path, a URL, or any name.
    pub name: Box<str>,
    /// Offsets of the first units of its lines.
    pub line_starts: Box<[u32]>,
    /// UTF-16 units.
    pub units: u32,
    /// What its text says of its map.
    pub map_url: Option<Box<str>>,
    #[expect(dead_code, reason = "its end is what counts")]
    pub held: Held,
}

impl ScriptFacts {
    /// Memory held.
    pub fn bytes(&self) -> usize {
        let url = self.map_url.as_ref().map_or(0, |url| url.len());
        size_of::<Self>() + self.name.len() + size_of_val(&*self.line_starts) + url
    }

    /// Line and column, both from 0.
    fn place(&self, offset: u32) -> Option<(u32, u32)> {
        if offset > self.units {
            return None;
        }
        let line = self.line_starts.partition_point(|start| *start <= offset).checked_sub(1)?;
        Some((line as u32, offset - self.line_starts[line]))
    }

    fn offset(&self, line: u32, column: u32) -> Option<u32> {
        let start = self.line_starts.get(line as usize)?;
        start.checked_add(column).filter(|offset| *offset <= self.units)
    }
}

enum MapState {
    Unread,
    /// None announced, or refused.
    Absent,
    Read(SourceMap),
}

struct Script {
    facts: ScriptFacts,
    map: MapState,
    isolate: usize,
    /// When it was last asked for.
    used: u64,
    /// Drain in which it was told of.
    told: u64,
    /// Ring position at which its isolate ended.
    ended: Option<u64>,
    functions: Vec<(Arc<CodeName>, Arc<LineTable>)>,
    /// Index of a function by the address of its name, of which there is one.
    by_name: HashMap<usize, usize>,
    /// Script offsets with the function that has them in its byte code; sorted.
    owners: Vec<(u32, u32)>,
    /// Functions whose places are not among them yet.
    to_own: Vec<u32>,
}

/// Memory for scripts, and for maps; what was told or used longest ago goes first.
const MAX_SCRIPT_BYTES: usize = 64 << 20;
const MAX_MAP_BYTES: usize = 96 << 20;
/// What a script and a function take beside their contents.
const SCRIPT_BYTES: usize = 400;
const FUNCTION_BYTES: usize = 80;

/// See the head of the module.
#[derive(Default)]
pub struct Scripts {
    scripts: BTreeMap<u32, Script>,
    script_bytes: usize,
    map_bytes: usize,
    clock: u64,
    generation: u64,
    some_ended: bool,
    pub maps_read: u64,
    pub maps_refused: u64,
    pub last_refusal: String,
    pub scripts_forgotten: u64,
    pub inlined_unnamed: u64,
}

/// A place in code to be named.
pub struct At<'a> {
    pub name: &'a Arc<CodeName>,
    /// 0 unknown.
    pub script: u32,
    pub positions: &'a [Position],
    pub inlining: Option<&'a Inlining>,
    /// The positions may be of functions that were inlined.
    pub is_optimised: bool,
    pub offset: u32,
}

impl Scripts {
    /// Begins a drain: forgets the scripts of isolates that ended before all samples that still wait.
    pub fn begin(&mut self, named_up_to: u64) {
        self.generation += 1;
        if !self.some_ended {
            return;
        }
        let is_over = |script: &Script| script.ended.is_some_and(|ended| ended <= named_up_to);
        let over: Vec<u32> = self.scripts.iter().filter(|(_, script)| is_over(script)).map(|(at, _)| *at).collect();
        over.iter().for_each(|number| self.forget(*number));
        self.some_ended = self.scripts.values().any(|script| script.ended.is_some());
    }

    /// The isolate ends: its scripts are asked for a little longer.
    pub fn end(&mut self, isolate: usize, position: u64) {
        for script in self.scripts.values_mut().filter(|script| script.isolate == isolate) {
            script.ended.get_or_insert(position);
            self.some_ended = true;
        }
    }

    /// Isolates that ended did so before the first position of another ring.
    pub fn positions_begin_anew(&mut self) {
        let ended = self.scripts.values_mut().filter_map(|script| script.ended.as_mut());
        ended.for_each(|position| *position = 0);
    }

    /// Takes a script in.
    pub fn introduce(&mut self, number: u32, isolate: usize, facts: ScriptFacts) {
        self.forget(number);
        self.clock += 1;
        self.script_bytes += facts.bytes() + SCRIPT_BYTES;
        let map = if facts.map_url.is_some() { MapState::Unread } else { MapState::Absent };
        let script = Script {
            facts,
            map,
            isolate,
            used: self.clock,
            told: self.generation,
            ended: None,
            functions: Vec::new(),
            by_name: HashMap::new(),
            owners: Vec::new(),
            to_own: Vec::new(),
        };
        self.scripts.insert(number, script);
        if self.script_bytes > MAX_SCRIPT_BYTES {
            self.forget_unused();
        }
    }

    /// Many at once, since finding them looks at all.
    fn forget_unused(&mut self) {
        let mut by_use: Vec<(u64, u32)> = self.scripts.iter().map(|(number, script)| (script.used, *number)).collect();
        by_use.sort_unstable();
        for (_, number) in by_use {
            if self.script_bytes <= MAX_SCRIPT_BYTES / 4 * 3 {
                break;
            }
            self.forget(number);
            self.scripts_forgotten += 1;
        }
    }

    /// Forgets scripts of which there is no code, but for those whose code may be under way.
    pub fn forget_others(&mut self, asked: &HashSet<u32>) {
        let is_over = |number: u32, script: &Script| !asked.contains(&number) && script.told < self.generation;
        let over: Vec<u32> =
            self.scripts.iter().filter(|(number, script)| is_over(**number, script)).map(|(at, _)| *at).collect();
        over.iter().for_each(|number| self.forget(*number));
    }

    fn forget(&mut self, number: u32) {
        let Some(script) = self.scripts.remove(&number) else { return };
        let functions = script.functions.len() * FUNCTION_BYTES;
        self.script_bytes = self.script_bytes.saturating_sub(script.facts.bytes() + SCRIPT_BYTES + functions);
        if let MapState::Read(map) = &script.map {
            self.map_bytes = self.map_bytes.saturating_sub(map.bytes());
        }
    }

    /// Takes in a function of a script, by the line table of its byte code.
    pub fn function(&mut self, number: u32, name: &Arc<CodeName>, lines: &Arc<LineTable>) {
        let Some(script) = self.scripts.get_mut(&number).filter(|_| !lines.is_empty()) else { return };
        match script.by_name.entry(Arc::as_ptr(name) as usize) {
            Entry::Occupied(known) if script.functions[*known.get()].1 == *lines => {}
            Entry::Occupied(known) => {
                script.functions[*known.get()].1 = lines.clone();
                // Its old places are among them.
                script.owners = Vec::new();
                script.to_own = (0..script.functions.len() as u32).collect();
            }
            Entry::Vacant(place) => {
                script.to_own.push(script.functions.len() as u32);
                place.insert(script.functions.len());
                script.functions.push((name.clone(), lines.clone()));
                self.script_bytes += FUNCTION_BYTES;
            }
        }
    }

    /// The frames of a place in code, innermost first.
    pub fn frames(&mut self, at: &At<'_>, out: &mut Vec<Frame>) {
        if !at.name.is_script {
            return out.push(Frame {
                function: at.name.function.clone(),
                frame_type: FrameType::Native,
                ..Frame::default()
            });
        }
        let believed = at.inlining.filter(|inlining| inlining.was_told || self.mostly_own(at, inlining.own_places()));
        let steps = believed.map(|inlining| inlining.chain(at.offset)).unwrap_or_default();
        for Step { inlined_from, script_offset } in steps.iter().copied() {
            match inlined_from {
                Some(script) => out.push(self.inlined(script, script_offset)),
                None => {
                    // Code that only V8 speaks of, such as a generator's first jump, has the place 0.
                    let was_told = believed.is_some_and(|inlining| inlining.was_told);
                    let is_own = was_told || self.all_own(at, [script_offset].into_iter());
                    out.push(self.frame(at.name, at.script, if is_own { script_offset } else { NOWHERE }));
                }
            }
        }
        if steps.is_empty() {
            let offset = match (at.inlining, at.is_optimised) {
                (None, false) => script_offset(at.positions, at.offset),
                // Whose inlined functions could not be read: the place is the function's own only if all are.
                (None, true) => script_offset(at.positions, at.offset)
                    .filter(|_| self.all_own(at, at.positions.iter().map(|position| position.1))),
                (Some(_), _) => None,
            };
            out.push(self.frame(at.name, at.script, offset.unwrap_or(NOWHERE)));
        }
    }

    /// Whether these are places of the function's own byte code, or its beginning.
    fn all_own(&mut self, at: &At<'_>, mut places: impl Iterator<Item = u32>) -> bool {
        let Some(script) = self.scripts.get_mut(&at.script) else { return places.all(|place| place == NOWHERE) };
        let beginning = script.beginning(at.name);
        places.all(|place| place == NOWHERE || Some(place) == beginning || script.has(at.name, place))
    }

    /// Whether at least half of these are places of its own, and any.
    fn mostly_own(&mut self, at: &At<'_>, places: impl Iterator<Item = u32>) -> bool {
        let Some(script) = self.scripts.get_mut(&at.script) else { return false };
        let beginning = script.beginning(at.name);
        let (mut own, mut known) = (0, 0);
        for place in places.filter(|place| *place != NOWHERE) {
            known += 1;
            own += usize::from(Some(place) == beginning || script.has(at.name, place));
        }
        own > 0 && own * 2 >= known
    }

    /// A function that was inlined: the one whose byte code has this very place.
    fn inlined(&mut self, number: u32, offset: u32) -> Frame {
        let name = self.scripts.get_mut(&number).and_then(|script| script.owner(offset));
        match name {
            Some(name) => self.frame(&name, number, offset),
            None => {
                self.inlined_unnamed += 1;
                let file = self.scripts.get(&number).map_or("", |script| &script.facts.name).into();
                let unnamed =
                    CodeName { function: "(inlined)".into(), file, start_line: 0, start_column: 0, is_script: true };
                self.frame(&Arc::new(unnamed), number, offset)
            }
        }
    }

    fn frame(&mut self, name: &Arc<CodeName>, number: u32, offset: u32) -> Frame {
        let place = self
            .scripts
            .get(&number)
            .and_then(|script| script.facts.place(offset).filter(|at| script.holds(name, *at)));
        let start = (name.start_line > 0).then(|| (name.start_line - 1, name.start_column.saturating_sub(1)));
        let mut frame = Frame {
            function: name.function.clone(),
            file: match name.file.starts_with('/') {
                true => name.file.clone(),
                false => source_map::path_of(&name.file).map_or_else(|| name.file.clone(), Into::into),
            },
            start_line: name.start_line,
            line: place.map_or(name.start_line, |place| place.0 + 1),
            column: place.map_or(0, |place| place.1 + 1),
            frame_type: FrameType::V8js,
        };
        let origin = |place: Option<(u32, u32)>, map: &SourceMap| map.origin(place?.0, place?.1);
        let Some(map) = self.map(number) else { return frame };
        let (at, start) = (origin(place, map), origin(start, map));
        if let Some(Origin { source, line, column }) = at {
            frame.start_line = start.filter(|start| start.source == source).map_or(0, |start| start.line + 1);
            (frame.file, frame.line, frame.column) = (source, line + 1, column + 1);
        } else if let (None, Some(start)) = (place, start) {
            (frame.file, frame.start_line, frame.line) = (start.source, start.line + 1, start.line + 1);
        }
        frame
    }

    fn map(&mut self, number: u32) -> Option<&SourceMap> {
        self.clock += 1;
        let now = self.clock;
        let script = self.scripts.get_mut(&number)?;
        script.used = now;
        if matches!(script.map, MapState::Unread) {
            match script.read_map() {
                Ok(map) => {
                    self.map_bytes += map.bytes();
                    self.maps_read += 1;
                    script.map = MapState::Read(map);
                    self.make_room(number);
                }
                Err(why) => {
                    self.maps_refused += 1;
                    self.last_refusal = format!("{}: {why}", script.facts.name);
                    script.map = MapState::Absent;
                }
            }
        }
        match &self.scripts.get(&number)?.map {
            MapState::Read(map) => Some(map),
            _ => None,
        }
    }

    /// Gives back maps used longest ago, but for the one in use.
    fn make_room(&mut self, in_use: u32) {
        while self.map_bytes > MAX_MAP_BYTES {
            let read = |script: &Script| matches!(script.map, MapState::Read(_));
            let others = self.scripts.iter_mut().filter(|(number, script)| **number != in_use && read(script));
            let Some((_, script)) = others.min_by_key(|(_, script)| script.used) else { break };
            if let MapState::Read(map) = std::mem::replace(&mut script.map, MapState::Unread) {
                self.map_bytes = self.map_bytes.saturating_sub(map.bytes());
            }
        }
    }

    /// Scripts known.
    pub fn len(&self) -> usize {
        self.scripts.len()
    }
}

impl Script {
    /// Whether a place can be in a function that begins where its name says: scripts may count their lines from elsewhere.
    fn holds(&self, name: &CodeName, place: (u32, u32)) -> bool {
        let start = (name.start_line.saturating_sub(1), name.start_column.saturating_sub(1));
        name.start_line == 0 || (place >= start && self.facts.offset(start.0, start.1).is_some())
    }

    /// Offset at which a function begins, as its name says.
    fn beginning(&self, name: &CodeName) -> Option<u32> {
        self.facts.offset(name.start_line.checked_sub(1)?, name.start_column.checked_sub(1)?)
    }

    /// The functions that have this place in their byte code.
    fn owners_of(&mut self, offset: u32) -> impl Iterator<Item = &Arc<CodeName>> {
        if !self.to_own.is_empty() {
            for index in self.to_own.drain(..) {
                let places = self.functions[index as usize].1.positions().iter().map(|position| position.1);
                self.owners.extend(places.filter(|place| *place != NOWHERE).map(|place| (place, index)));
            }
            // What is sorted already is only merged.
            self.owners.sort();
            self.owners.dedup();
        }
        let first = self.owners.partition_point(|owner| owner.0 < offset);
        let found = self.owners[first..].iter().take_while(move |owner| owner.0 == offset);
        found.map(|(_, index)| &self.functions[*index as usize].0)
    }

    fn has(&mut self, name: &CodeName, offset: u32) -> bool {
        self.owners_of(offset).any(|owner| **owner == *name)
    }

    fn owner(&mut self, offset: u32) -> Option<Arc<CodeName>> {
        if offset == NOWHERE {
            return None;
        }
        let mut owners = self.owners_of(offset);
        if let Some(name) = owners.next().cloned() {
            // Two functions with one place: it cannot be told which.
            return owners.all(|other| *other == name).then_some(name);
        }
        drop(owners);
        let mut begin = self.functions.iter().map(|(name, _)| name).filter(|name| self.beginning(name) == Some(offset));
        let name = begin.next()?;
        begin.all(|other| other == name).then(|| name.clone())
    }

    fn read_map(&self) -> Result<SourceMap, source_map::MapError> {
        let limits = Limits::default();
        let url = self.facts.map_url.as_deref().unwrap_or("");
        let found = source_map::read(&self.facts.name, url, &limits)?;
        source_map::decode(&found.text, &found.base, &limits)
    }
}

#[cfg(test)]
#[path = "scripts_tests.rs"]
mod tests;
