//! The scripts of the process: line starts, functions, source maps. A source map is read when a frame of its script is first
//! resolved. Owned by the drain thread.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use spanprof_aggregate::runtime::{Frame, FrameType};

use super::builtin_names::frame as builtin_frame;
use super::inlining::InliningFrame;
use super::names::{CodeName, ANONYMOUS};
use super::script_functions::ScriptFunctions;
use super::{script_offset, Inlining, LineTable, Position, NO_POSITION};
use crate::source_map::{self, Origin, SourceMap, SourceMapLimits};

/// Pseudo-isolate of what all isolates have in common, which outlives them.
pub const OF_PROCESS: usize = 0;

/// The scripts with a description, at their number modulo the length. One whose place another took is described again.
static RETAINED: [AtomicU32; 1 << 16] = [const { AtomicU32::new(0) }; 1 << 16];

fn retained(number: u32) -> &'static AtomicU32 {
    &RETAINED[number as usize % RETAINED.len()]
}

/// Whether the description of a script is kept or queued.
pub fn is_retained(number: u32) -> bool {
    retained(number).load(Ordering::Relaxed) == number
}

/// A script is described until its guard is dropped. Then a JavaScript thread describes it again.
#[derive(Debug, Default)]
pub struct RetentionGuard(u32);

impl RetentionGuard {
    pub fn new(number: u32) -> Self {
        retained(number).store(number, Ordering::Relaxed);
        Self(number)
    }
}

impl Drop for RetentionGuard {
    fn drop(&mut self) {
        let _ = retained(self.0).compare_exchange(self.0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A script as described by the JavaScript thread.
#[derive(Debug, Default)]
pub struct ScriptInfo {
    /// A path, a URL, or any name.
    pub name: Box<str>,
    /// Offsets of the first code unit of each line.
    pub line_starts: Box<[u32]>,
    /// Length of the source in UTF-16 code units.
    pub units: u32,
    /// Source map URL of the script.
    pub map_url: Option<Box<str>>,
    #[expect(dead_code, reason = "its drop counts")]
    pub guard: RetentionGuard,
}

impl ScriptInfo {
    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        let url = self.map_url.as_ref().map_or(0, |url| url.len());
        size_of::<Self>() + self.name.len() + size_of_val(&*self.line_starts) + url
    }

    /// Line and column, both from 0.
    fn location(&self, offset: u32) -> Option<(u32, u32)> {
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
    /// Without a source map URL, or refused.
    Absent,
    Read(Box<SourceMap>),
}

struct Script {
    info: ScriptInfo,
    map: MapState,
    isolate: usize,
    /// Clock value of the last use.
    last_use: u64,
    /// Number of the drain in which it was added.
    added_in: u64,
    /// Ring position at which its isolate ended.
    ended: Option<u64>,
    functions: ScriptFunctions,
}

/// Memory limits for scripts and for source maps; the least recently used are evicted first.
const MAX_SCRIPT_BYTES: usize = 64 << 20;
const MAX_MAP_BYTES: usize = 96 << 20;
/// Size of a script and of a function without their contents.
const SCRIPT_BYTES: usize = 240;
const FUNCTION_BYTES: usize = 24;

/// The scripts of all isolates, by number.
#[derive(Default)]
pub struct Scripts {
    scripts: BTreeMap<u32, Box<Script>>,
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

/// A location in code to be resolved.
pub struct CodeLocation<'a> {
    pub name: &'a Arc<CodeName>,
    /// 0 when unknown.
    pub script: u32,
    pub positions: &'a [Position],
    pub inlining: Option<&'a Inlining>,
    /// The positions may be in inlined functions.
    pub is_optimized: bool,
    pub offset: u32,
}

impl Scripts {
    /// Begins a drain: drops the scripts of isolates that ended before all unresolved samples.
    pub fn begin_drain(&mut self, resolved_up_to: u64) {
        self.generation += 1;
        if !self.some_ended {
            return;
        }
        let is_expired = |script: &Script| script.ended.is_some_and(|ended| ended <= resolved_up_to);
        let expired: Vec<u32> =
            self.scripts.iter().filter(|(_, script)| is_expired(script)).map(|(at, _)| *at).collect();
        expired.iter().for_each(|number| self.drop_script(*number));
        self.some_ended = self.scripts.values().any(|script| script.ended.is_some());
    }

    /// The isolate ends; its scripts stay until its samples are resolved.
    pub fn end_isolate(&mut self, isolate: usize, position: u64) {
        for script in self.scripts.values_mut().filter(|script| script.isolate == isolate) {
            script.ended.get_or_insert(position);
            self.some_ended = true;
        }
    }

    /// Ended isolates count as ended before the first position of another ring.
    pub fn reset_positions(&mut self) {
        let ended = self.scripts.values_mut().filter_map(|script| script.ended.as_mut());
        ended.for_each(|position| *position = 0);
    }

    pub fn add(&mut self, number: u32, isolate: usize, info: ScriptInfo) {
        if self.scripts.contains_key(&number) {
            // Two threads described it.
            drop(info);
            return retained(number).store(number, Ordering::Relaxed);
        }
        self.clock += 1;
        self.script_bytes += info.bytes() + SCRIPT_BYTES;
        let map = if info.map_url.is_some() { MapState::Unread } else { MapState::Absent };
        let script = Script {
            info,
            map,
            isolate,
            last_use: self.clock,
            added_in: self.generation,
            ended: None,
            functions: ScriptFunctions::default(),
        };
        self.scripts.insert(number, Box::new(script));
        if self.script_bytes > MAX_SCRIPT_BYTES {
            self.evict_unused();
        }
    }

    /// Evicts a quarter at once, since each eviction pass scans all scripts.
    fn evict_unused(&mut self) {
        let mut by_use: Vec<(u64, u32)> =
            self.scripts.iter().map(|(number, script)| (script.last_use, *number)).collect();
        by_use.sort_unstable();
        for (_, number) in by_use {
            if self.script_bytes <= MAX_SCRIPT_BYTES / 4 * 3 {
                break;
            }
            self.drop_script(number);
            self.scripts_forgotten += 1;
        }
    }

    /// Drops scripts without code, except for those whose code may still be queued.
    pub fn drop_unreferenced(&mut self, referenced: &HashSet<u32>) {
        let is_expired = |number: u32, script: &Script| {
            !referenced.contains(&number) && script.added_in < self.generation && script.isolate != OF_PROCESS
        };
        let expired: Vec<u32> =
            self.scripts.iter().filter(|(number, script)| is_expired(**number, script)).map(|(at, _)| *at).collect();
        expired.iter().for_each(|number| self.drop_script(*number));
    }

    fn drop_script(&mut self, number: u32) {
        let Some(script) = self.scripts.remove(&number) else { return };
        let functions = script.functions.names().count() * FUNCTION_BYTES;
        self.script_bytes = self.script_bytes.saturating_sub(script.info.bytes() + SCRIPT_BYTES + functions);
        if let MapState::Read(map) = &script.map {
            self.map_bytes = self.map_bytes.saturating_sub(map.bytes());
        }
    }

    /// Adds a function of a script, with the line table of its bytecode.
    pub fn add_function(&mut self, number: u32, name: &Arc<CodeName>, lines: &Arc<LineTable>) {
        let Some(script) = self.scripts.get_mut(&number).filter(|_| !lines.is_empty()) else { return };
        self.script_bytes += if script.functions.add(name, lines) { FUNCTION_BYTES } else { 0 };
    }

    /// The frames of a location in code, innermost first.
    pub fn frames(&mut self, at: &CodeLocation<'_>, out: &mut Vec<Frame>) {
        if !at.name.is_script {
            return out.push(builtin_frame(&at.name.function));
        }
        let trusted =
            at.inlining.filter(|inlining| inlining.is_reported || self.mostly_own(at, inlining.own_positions()));
        let inlining_frames = trusted.map(|inlining| inlining.chain(at.offset)).unwrap_or_default();
        for InliningFrame { inlined_from, script_offset } in inlining_frames.iter().copied() {
            match inlined_from {
                Some(script) => out.push(self.inlined(script, script_offset)),
                None => {
                    // Code without a source, such as a generator's first jump, has position 0.
                    let is_reported = trusted.is_some_and(|inlining| inlining.is_reported);
                    let is_own = is_reported || self.all_own(at, [script_offset].into_iter());
                    out.push(self.frame(at.name, at.script, if is_own { script_offset } else { NO_POSITION }));
                }
            }
        }
        if inlining_frames.is_empty() {
            let offset = match (at.inlining, at.is_optimized) {
                (None, false) => script_offset(at.positions, at.offset),
                // Unknown inlining: the position is the function's own only if all positions of the code are.
                (None, true) => script_offset(at.positions, at.offset)
                    .filter(|_| self.all_own(at, at.positions.iter().map(|position| position.1))),
                (Some(_), _) => None,
            };
            out.push(self.frame(at.name, at.script, offset.unwrap_or(NO_POSITION)));
        }
    }

    /// Whether all positions are in the function's own bytecode, or its start.
    fn all_own(&mut self, at: &CodeLocation<'_>, mut positions: impl Iterator<Item = u32>) -> bool {
        let Some(script) = self.scripts.get_mut(&at.script) else {
            return positions.all(|position| position == NO_POSITION);
        };
        let start_offset = script.start_offset(at.name);
        positions.all(|position| {
            position == NO_POSITION || Some(position) == start_offset || script.has_position(at.name, position)
        })
    }

    /// Whether at least half of the positions, and at least one, are the function's own.
    fn mostly_own(&mut self, at: &CodeLocation<'_>, positions: impl Iterator<Item = u32>) -> bool {
        let Some(script) = self.scripts.get_mut(&at.script) else { return false };
        let start_offset = script.start_offset(at.name);
        let (mut own, mut known) = (0, 0);
        for position in positions.filter(|position| *position != NO_POSITION) {
            known += 1;
            own += usize::from(Some(position) == start_offset || script.has_position(at.name, position));
        }
        own > 0 && own * 2 >= known
    }

    /// An inlined function: the one whose bytecode has exactly this position.
    fn inlined(&mut self, number: u32, offset: u32) -> Frame {
        let name = self.scripts.get_mut(&number).and_then(|script| script.owner(offset));
        match name {
            Some(name) => self.frame(&name, number, offset),
            None => {
                self.inlined_unnamed += 1;
                let file = self.scripts.get(&number).map_or("", |script| &script.info.name).into();
                let unnamed =
                    CodeName { function: "(inlined)".into(), file, start_line: 0, start_column: 0, is_script: true };
                self.frame(&Arc::new(unnamed), number, offset)
            }
        }
    }

    fn frame(&mut self, name: &Arc<CodeName>, number: u32, offset: u32) -> Frame {
        let mut frame = self.named_frame(name, number, offset);
        if &*frame.function == ANONYMOUS && frame.start_line > 0 {
            let (_, file) = frame.file.rsplit_once('/').unwrap_or(("", &frame.file));
            frame.function = format!("{ANONYMOUS} {file}:{}", frame.start_line).into();
        }
        frame
    }

    fn named_frame(&mut self, name: &Arc<CodeName>, number: u32, offset: u32) -> Frame {
        let location = self
            .scripts
            .get(&number)
            .and_then(|script| script.info.location(offset).filter(|at| script.may_contain(name, *at)));
        let start = (name.start_line > 0).then(|| (name.start_line - 1, name.start_column.saturating_sub(1)));
        let mut frame = Frame {
            function: name.function.clone(),
            file: if name.file.starts_with('/') {
                name.file.clone()
            } else {
                source_map::path_of(&name.file).map_or_else(|| name.file.clone(), Into::into)
            },
            start_line: name.start_line,
            line: location.map_or(name.start_line, |location| location.0 + 1),
            column: location.map_or(0, |location| location.1 + 1),
            frame_type: FrameType::V8js,
            native: None,
        };
        let origin = |location: Option<(u32, u32)>, map: &SourceMap| map.origin(location?.0, location?.1);
        let Some(map) = self.map(number) else { return frame };
        let (current, start) = (origin(location, map), origin(start, map));
        if let Some(Origin { source, line, column }) = current {
            frame.start_line = start.filter(|start| start.source == source).map_or(0, |start| start.line + 1);
            (frame.file, frame.line, frame.column) = (source, line + 1, column + 1);
        } else if let (None, Some(start)) = (location, start) {
            (frame.file, frame.start_line, frame.line) = (start.source, start.line + 1, start.line + 1);
        }
        frame
    }

    fn map(&mut self, number: u32) -> Option<&SourceMap> {
        self.clock += 1;
        let now = self.clock;
        let script = self.scripts.get_mut(&number)?;
        script.last_use = now;
        if matches!(script.map, MapState::Unread) {
            match script.read_map() {
                Ok(map) => {
                    self.map_bytes += map.bytes();
                    self.maps_read += 1;
                    script.map = MapState::Read(Box::new(map));
                    self.evict_maps(number);
                }
                Err(reason) => {
                    self.maps_refused += 1;
                    self.last_refusal = format!("{}: {reason}", script.info.name);
                    script.map = MapState::Absent;
                }
            }
        }
        match &self.scripts.get(&number)?.map {
            MapState::Read(map) => Some(map),
            _ => None,
        }
    }

    /// Evicts the least recently used source maps, except for `in_use`.
    fn evict_maps(&mut self, in_use: u32) {
        while self.map_bytes > MAX_MAP_BYTES {
            let read = |script: &Script| matches!(script.map, MapState::Read(_));
            let others = self.scripts.iter_mut().filter(|(number, script)| **number != in_use && read(script));
            let Some((_, script)) = others.min_by_key(|(_, script)| script.last_use) else { break };
            if let MapState::Read(map) = std::mem::replace(&mut script.map, MapState::Unread) {
                self.map_bytes = self.map_bytes.saturating_sub(map.bytes());
            }
        }
    }

    /// Number of scripts.
    pub fn len(&self) -> usize {
        self.scripts.len()
    }
}

impl Script {
    /// Whether a location can be inside a function with this start: scripts may have a line offset.
    fn may_contain(&self, name: &CodeName, location: (u32, u32)) -> bool {
        let start = (name.start_line.saturating_sub(1), name.start_column.saturating_sub(1));
        name.start_line == 0 || (location >= start && self.info.offset(start.0, start.1).is_some())
    }

    /// Offset of a function's start, from its name.
    fn start_offset(&self, name: &CodeName) -> Option<u32> {
        self.info.offset(name.start_line.checked_sub(1)?, name.start_column.checked_sub(1)?)
    }

    fn has_position(&mut self, name: &CodeName, offset: u32) -> bool {
        self.functions.owners_of(offset).any(|owner| **owner == *name)
    }

    fn owner(&mut self, offset: u32) -> Option<Arc<CodeName>> {
        if offset == NO_POSITION {
            return None;
        }
        let mut owners = self.functions.owners_of(offset);
        if let Some(name) = owners.next().cloned() {
            // Two functions share the position: ambiguous.
            return owners.all(|other| *other == name).then_some(name);
        }
        drop(owners);
        let mut starting = self.functions.names().filter(|name| self.start_offset(name) == Some(offset));
        let name = starting.next()?;
        starting.all(|other| other == name).then(|| name.clone())
    }

    fn read_map(&self) -> Result<SourceMap, source_map::MapError> {
        let limits = SourceMapLimits::default();
        let url = self.info.map_url.as_deref().unwrap_or("");
        let map = source_map::read(&self.info.name, url, &limits)?;
        source_map::decode(&map.text, &map.base, &limits)
    }
}

#[cfg(test)]
#[path = "scripts_tests.rs"]
mod tests;
