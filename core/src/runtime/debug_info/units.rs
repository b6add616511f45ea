//! The compilation units of a debug file: which one contains an address. Address ranges and offsets are kept of all units,
//! headers and tables of used ones up to a limit.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{Abbreviation, DebugInfoOffset, Dwarf, FileEntry, UnitOffset, UnitRef, UnitType};

use super::file::DebugFile;
use super::functions::{function_ranges, FunctionRange};
use super::lines::Lines;
use super::Slice;
use spanprof_aggregate::hash::WordMap;

/// Limit of the headers of units that are kept.
const MAX_PARSED_BYTES: usize = 1 << 20;
/// Limit of the tables of units that are kept.
const MAX_TABLE_BYTES: usize = 4 << 20;
/// Bytes of debug information that are read between two releases of the file's pages.
const BYTES_BETWEEN_RELEASES: u32 = 4 << 20;
/// Functions are aligned to at most this.
const MAX_PADDING: u32 = 64;

/// The index of the units of one debug file, and the parsed ones.
pub(super) struct Units {
    pub file: DebugFile,
    /// Sorted by end.
    ranges: Box<[UnitRange]>,
    /// Offsets of all units, ascending.
    offsets: Box<[u32]>,
    /// Most recently used last.
    parsed: Vec<Arc<ParsedUnit>>,
    /// By offset of the unit.
    tables: WordMap<u32, Arc<Tables>>,
    table_bytes: usize,
}

/// An address range of a unit.
struct UnitRange {
    begin: u32,
    end: u32,
    /// Lowest `begin` of this and all later ranges.
    lowest_begin: u32,
    /// Offset of the unit.
    unit: u32,
}

/// The header of a unit.
pub(super) struct ParsedUnit {
    /// In the section of units.
    pub offset: u32,
    unit: gimli::Unit<Slice>,
    /// The part that is in another file.
    split: Option<(Arc<Dwarf<Slice>>, gimli::Unit<Slice>)>,
}

/// The tables of a unit.
pub(super) struct Tables {
    pub functions: Box<[FunctionRange]>,
    pub lines: Option<Lines>,
}

impl Units {
    /// Reads the address ranges of all units.
    pub fn read(file: DebugFile) -> Self {
        let (mut ranges, mut offsets) = (Vec::new(), Vec::new());
        let mut headers = file.dwarf.units();
        let mut released = 0;
        while let Ok(Some(header)) = headers.next() {
            let Some(offset) = header.debug_info_offset().and_then(|offset| u32::try_from(offset.0).ok()) else {
                break;
            };
            let is_type = matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. });
            if is_type {
                continue;
            }
            offsets.push(offset);
            if let Ok(unit) = file.dwarf.unit(header) {
                unit_ranges(UnitRef::new(&file.dwarf, &unit), offset, &mut ranges);
            }
            if offset - released > BYTES_BETWEEN_RELEASES {
                released = offset;
                file.release_pages();
            }
        }
        file.release_pages();
        Self {
            file,
            ranges: sorted(ranges),
            offsets: offsets.into(),
            parsed: Vec::new(),
            tables: WordMap::default(),
            table_bytes: 0,
        }
    }

    /// The units of which a range contains `address`. Usually one: a unit may declare one range around several functions.
    pub fn at(&self, address: u64) -> Vec<u32> {
        let Ok(address) = u32::try_from(address) else { return Vec::new() };
        let first = self.ranges.partition_point(|range| range.end <= address);
        let ranges = self.ranges.get(first..).unwrap_or_default().iter();
        let ranges = ranges.take_while(|range| range.lowest_begin <= address).filter(|range| range.begin <= address);
        let mut units: Vec<u32> = ranges.map(|range| range.unit).collect();
        units.dedup();
        units
    }

    /// The unit that contains an entry, and the entry's offset in it.
    pub fn of_entry(&mut self, entry: DebugInfoOffset) -> Option<(Arc<ParsedUnit>, UnitOffset)> {
        let after = self.offsets.partition_point(|offset| *offset as usize <= entry.0);
        let unit = self.parsed(*self.offsets.get(after.checked_sub(1)?)?)?;
        let offset = entry.to_unit_offset(&unit.unit.header)?;
        Some((unit, offset))
    }

    /// The unit at `offset`.
    pub fn parsed(&mut self, offset: u32) -> Option<Arc<ParsedUnit>> {
        if let Some(at) = self.parsed.iter().rposition(|unit| unit.offset == offset) {
            let unit = self.parsed.remove(at);
            self.parsed.push(unit.clone());
            return Some(unit);
        }
        let header = self.file.dwarf.unit_header(DebugInfoOffset(offset as usize)).ok()?;
        let unit = self.file.dwarf.unit(header).ok()?;
        let split = unit.dwo_id.and_then(|id| {
            let path = split_path(UnitRef::new(&self.file.dwarf, &unit))?;
            let dwarf = self.file.split(id, path)?;
            let header = dwarf.units().next().ok()??;
            let mut split = dwarf.unit(header).ok()?;
            split.copy_relocated_attributes(&unit);
            Some((dwarf, split))
        });
        let parsed = Arc::new(ParsedUnit { offset, unit, split });
        self.parsed.push(parsed.clone());
        Some(parsed)
    }

    /// The functions and lines of a unit.
    pub fn tables(&mut self, unit: &ParsedUnit) -> Arc<Tables> {
        if let Some(tables) = self.tables.get(&unit.offset) {
            return tables.clone();
        }
        let tables = Arc::new(Tables {
            functions: function_ranges(unit.functions(&self.file)).unwrap_or_default(),
            lines: Lines::read(unit.skeleton(&self.file)),
        });
        // The whole unit was read.
        self.file.release_pages();
        self.table_bytes += tables.bytes();
        if self.table_bytes > MAX_TABLE_BYTES {
            self.tables.clear();
            self.table_bytes = tables.bytes();
        }
        self.tables.insert(unit.offset, tables.clone());
        tables
    }

    /// Drops headers above the limit, and pages of the files.
    pub fn trim(&mut self) {
        let mut bytes = 0;
        let first = self.parsed.iter().rposition(|unit| {
            bytes += unit.bytes();
            bytes > MAX_PARSED_BYTES
        });
        self.parsed.drain(..first.map_or(0, |first| first + 1));
        self.file.release_pages();
    }
}

impl Tables {
    fn bytes(&self) -> usize {
        size_of_val(&*self.functions) + self.lines.as_ref().map_or(0, Lines::bytes)
    }
}

impl ParsedUnit {
    /// The unit with the lines.
    pub fn skeleton<'a>(&'a self, file: &'a DebugFile) -> UnitRef<'a, Slice> {
        UnitRef::new(&file.dwarf, &self.unit)
    }

    /// The unit with the functions.
    pub fn functions<'a>(&'a self, file: &'a DebugFile) -> UnitRef<'a, Slice> {
        self.split.as_ref().map_or(self.skeleton(file), |(dwarf, unit)| UnitRef::new(dwarf, unit))
    }

    pub fn is_split(&self) -> bool {
        self.split.is_some()
    }

    /// Approximate size.
    fn bytes(&self) -> usize {
        const ABBREVIATIONS: usize = 100;
        let files = self.unit.line_program.as_ref().map_or(0, |program| program.header().file_names().len());
        size_of::<Self>() + ABBREVIATIONS * size_of::<Abbreviation>() + files * size_of::<FileEntry<Slice>>()
    }
}

fn unit_ranges(unit: UnitRef<'_, Slice>, offset: u32, out: &mut Vec<UnitRange>) {
    let mut add = |range: gimli::Range| {
        if let (Ok(begin), Ok(end)) = (u32::try_from(range.begin), u32::try_from(range.end)) {
            out.extend((begin < end).then_some(UnitRange { begin, end, lowest_begin: 0, unit: offset }));
            return begin < end;
        }
        false
    };
    let mut has_ranges = false;
    if let Ok(mut ranges) = unit.unit_ranges() {
        while let Ok(Some(range)) = ranges.next() {
            has_ranges |= add(range);
        }
    }
    // Units of some assemblers and old compilers declare none.
    if let Some(lines) = (!has_ranges).then(|| Lines::read(unit)).flatten() {
        lines.ranges().for_each(|range| _ = add(range));
    }
}

/// Sorts ranges for the search, and joins the adjacent ones of a unit.
fn sorted(mut ranges: Vec<UnitRange>) -> Box<[UnitRange]> {
    ranges.sort_unstable_by_key(|range| (range.end, range.unit));
    ranges.dedup_by(|next, range| {
        let joins =
            next.unit == range.unit && next.begin >= range.begin && next.begin <= range.end.saturating_add(MAX_PADDING);
        if joins {
            range.end = next.end;
        }
        joins
    });
    let mut lowest_begin = u32::MAX;
    for range in ranges.iter_mut().rev() {
        lowest_begin = lowest_begin.min(range.begin);
        range.lowest_begin = lowest_begin;
    }
    ranges.into()
}

fn split_path(unit: UnitRef<'_, Slice>) -> Option<PathBuf> {
    let name = unit.attr_string(unit.dwo_name().ok()??).ok()?;
    let directory = unit.comp_dir.map(|directory| OsStr::from_bytes(directory.slice())).unwrap_or_default();
    Some(Path::new(directory).join(OsStr::from_bytes(name.slice())))
}
