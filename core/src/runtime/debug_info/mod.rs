//! Functions, files and lines of native code from DWARF debug information. Memory does not depend on the size of the program:
//! kept are the address ranges of units, the tables of recently used units, and names; pages of files are released after
//! each batch. Not here: the object of an address and its symbol table (`spanprof_os`).

mod file;
mod functions;
mod lines;
#[cfg(test)]
mod tests;
mod units;

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{AttributeValue, EndianSlice, LittleEndian, UnitRef};

use file::DebugFile;
use functions::{executing, function_at, Executing, NameAttributes};
use lines::SourcePosition;
use spanprof_aggregate::hash::WordMap;
use spanprof_aggregate::runtime::{ends_soon, Frame, FrameType};
use spanprof_os::FileSymbols;
use spanprof_profile::demangle;
use units::{ParsedUnit, Tables, Units};

type Slice = EndianSlice<'static, LittleEndian>;

/// Limit of debug files, whose address space is never returned.
const MAX_FILES: usize = 256;
/// Limits of names and of paths.
const MAX_NAMES: usize = 8_192;
/// Addresses between two releases of pages. Each touches about ten chunks of 64 KiB, which the kernel maps at once.
const ADDRESSES_BETWEEN_RELEASES: u32 = 8;
/// Entries between a function and its name; two in practice.
const MAX_ORIGINS: usize = 16;

/// Debug information of the loaded objects.
#[derive(Default)]
pub(crate) struct DebugSymbols {
    /// By identity of the loaded object.
    objects: WordMap<(u64, u64), Option<ObjectDebugInfo>>,
    file_symbols: FileSymbols,
    names: Names,
    addresses_since_release: u32,
    /// Whether code of the program has no name because its file has no symbols.
    pub is_program_stripped: bool,
}

/// Function, file and position of a frame.
type NamedPosition = (Option<Arc<str>>, Arc<str>, SourcePosition);

struct ObjectDebugInfo {
    units: Units,
    /// Distinguishes its names.
    number: u32,
}

/// Names and paths, by their place in the debug information.
#[derive(Default)]
struct Names {
    functions: WordMap<(u64, u64), Option<Arc<str>>>,
    files: WordMap<(u64, u64), Arc<str>>,
    paths: HashMap<String, Arc<str>>,
}

impl DebugSymbols {
    /// Appends the functions whose code was at `address` at ring position `position`; innermost first. False without a name.
    pub fn frames(&mut self, address: u64, position: u64, out: &mut Vec<Frame>) -> bool {
        let Some(native) = spanprof_os::native_object(address, position) else { return false };
        let object = native.object(address);
        let debug_frames = if ends_soon() { None } else { self.debug_frames(&native, &object, address) };
        let mut frames = debug_frames.unwrap_or_default();
        if frames.is_empty() {
            frames.push((None, "".into(), SourcePosition::default()));
        }
        let before = out.len();
        // All but the outermost are inlined: they have no symbol.
        let outermost = frames.len() - 1;
        for (nth, (name, file, position)) in frames.into_iter().enumerate() {
            let mut of_symbol = || {
                let of_file = self.file_symbols.function(&object, address).map(|function| function.symbol);
                let symbol = of_file.or_else(|| native.exported_symbol(address).map(Arc::from))?;
                Some(demangle(&symbol).map_or(symbol, Arc::from))
            };
            let name = match name {
                // `{async_fn#0}` or `{closure#0}`: line tables have no paths, of which this is the last part.
                Some(part) if nth == outermost && part.starts_with('{') => of_symbol().or(Some(part)),
                name => name.or_else(of_symbol),
            };
            let Some(function) = name.filter(|name| !name.is_empty()) else { continue };
            let SourcePosition { line, column, .. } = position;
            out.push(Frame { function, file, line, column, frame_type: FrameType::Rust, ..Frame::default() });
        }
        let is_named = out.len() > before;
        self.is_program_stripped |= !is_named && native.is_of_program && self.file_symbols.is_without_table(&object);
        is_named
    }

    /// Drops what only a batch of addresses needs.
    pub fn end_batch(&mut self) {
        if std::mem::take(&mut self.addresses_since_release) > 0 {
            self.objects.values_mut().flatten().for_each(|object| object.units.trim());
        }
    }

    fn debug_frames(
        &mut self,
        native: &spanprof_os::NativeObject,
        object: &spanprof_os::LoadedObject,
        address: u64,
    ) -> Option<Vec<NamedPosition>> {
        let (key, number) = ((object.base, object.first_page), self.objects.len());
        if number >= MAX_FILES && !self.objects.contains_key(&key) {
            return None;
        }
        let known = self.objects.entry(key).or_insert_with(|| {
            let path = if native.is_of_program {
                std::fs::read_link(&object.path).ok()?
            } else {
                // A library may have been replaced by a later version.
                spanprof_os::is_file_of(object).then(|| object.path.clone())?
            };
            let file = DebugFile::open(&object.path, &path)?;
            Some(ObjectDebugInfo { units: Units::read(file), number: number as u32 })
        });
        let known = known.as_mut()?;
        self.addresses_since_release += 1;
        if self.addresses_since_release.is_multiple_of(ADDRESSES_BETWEEN_RELEASES) {
            known.units.trim();
        }
        let address = address.checked_sub(object.base)?.checked_add(known.units.file.first_address)?;
        known.units.at(address).into_iter().find_map(|unit| known.frames(unit, address, &mut self.names))
    }
}

impl ObjectDebugInfo {
    /// `None` when the unit has neither a function nor a line at `address`.
    fn frames(&mut self, unit: u32, address: u64, names: &mut Names) -> Option<Vec<NamedPosition>> {
        let unit = self.units.parsed(unit)?;
        let tables = self.units.tables(&unit);
        let position = tables.lines.as_ref().and_then(|lines| lines.position(address));
        let function = function_at(&tables.functions, address);
        if function.is_none() && position.is_none() {
            return None;
        }
        let executing = function.and_then(|entry| executing(unit.functions(&self.units.file), entry, address).ok());
        let executing = executing.unwrap_or_default();
        let mut position = position.unwrap_or_default();
        if executing.is_empty() {
            return Some(vec![(None, self.file(&unit, &tables, position.file, names), position)]);
        }
        let frames = executing.iter().rev().map(|function| {
            let at = std::mem::replace(&mut position, function.call);
            (self.name(&unit, function, names), self.file(&unit, &tables, at.file, names), at)
        });
        Some(frames.collect())
    }

    fn file(&self, unit: &ParsedUnit, tables: &Tables, file: Option<u64>, names: &mut Names) -> Arc<str> {
        let read = |file| tables.lines.as_ref()?.path(unit.skeleton(&self.units.file), file);
        let Some(file) = file else { return "".into() };
        names.file((self.place(unit), file), || read(file).unwrap_or_default())
    }

    fn name(&mut self, unit: &Arc<ParsedUnit>, function: &Executing, names: &mut Names) -> Option<Arc<str>> {
        let (mut unit, mut entry) = (unit.clone(), function.entry);
        let mut attributes = Some(function.name);
        for _ in 0..MAX_ORIGINS {
            let key = (self.place(&unit), entry.0 as u64);
            if let Some(name) = names.functions.get(&key) {
                return name.clone();
            }
            let read = match attributes.take() {
                Some(attributes) => attributes,
                None => NameAttributes::read(unit.functions(&self.units.file), entry)?,
            };
            if let Some(name) = read.own(unit.functions(&self.units.file)) {
                return names.function(key, name);
            }
            match read.origin? {
                AttributeValue::UnitRef(offset) => entry = offset,
                AttributeValue::DebugInfoRef(offset) if !unit.is_split() => {
                    (unit, entry) = self.units.of_entry(offset)?;
                }
                AttributeValue::DebugInfoRefSup(offset) => return self.supplementary_name(offset),
                _ => return None,
            }
        }
        None
    }

    /// A name in the file that `dwz` moved common parts to.
    fn supplementary_name(&self, offset: gimli::DebugInfoOffset) -> Option<Arc<str>> {
        let dwarf = self.units.file.dwarf.sup()?;
        let mut headers = dwarf.units();
        while let Some(header) = headers.next().ok()? {
            let Some(entry) = offset.to_unit_offset(&header) else { continue };
            let unit = dwarf.unit(header).ok()?;
            let unit = UnitRef::new(dwarf, &unit);
            return NameAttributes::read(unit, entry)?.own(unit).map(demangled);
        }
        None
    }

    fn place(&self, unit: &ParsedUnit) -> u64 {
        u64::from(self.number) << 32 | u64::from(unit.offset)
    }
}

impl Names {
    fn function(&mut self, key: (u64, u64), name: (Slice, Option<Slice>)) -> Option<Arc<str>> {
        if self.functions.len() >= MAX_NAMES {
            self.functions.clear();
        }
        let name = Some(demangled(name));
        self.functions.insert(key, name.clone());
        name
    }

    fn file(&mut self, key: (u64, u64), read: impl FnOnce() -> String) -> Arc<str> {
        if let Some(name) = self.files.get(&key) {
            return name.clone();
        }
        if self.files.len().max(self.paths.len()) >= MAX_NAMES {
            self.files.clear();
            self.paths.clear();
        }
        let path = read();
        let shared = self.paths.get(&path).cloned().unwrap_or_else(|| Arc::from(&*path));
        self.paths.insert(path, shared.clone());
        self.files.insert(key, shared.clone());
        shared
    }
}

/// A name with the type arguments of another one.
fn demangled((name, typed): (Slice, Option<Slice>)) -> Arc<str> {
    let name = name.to_string_lossy();
    let typed = typed.map(|typed| typed.to_string_lossy()).unwrap_or_default();
    let arguments = typed.find('<').map_or("", |start| &typed[start..]);
    (demangle(&name).unwrap_or_else(|| name.into_owned()) + arguments).into()
}
