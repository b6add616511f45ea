//! Functions of a unit: the one that contains an address, and the calls that the compiler inlined there.

use gimli::{Abbreviation, AttributeValue, EntriesRaw, RangeListsOffset, UnitOffset, UnitRef};

use super::lines::SourcePosition;
use super::Slice;

/// Inherent functions of containers in the standard library, as their symbols begin.
const LEGACY_CONTAINERS: [&str; 8] = [
    "_ZN5alloc3vec",
    "_ZN5alloc7raw_vec",
    "_ZN5alloc5boxed",
    "_ZN5alloc4sync",
    "_ZN5alloc2rc",
    "_ZN5alloc11collections9vec_deque",
    "_ZN9hashbrown3raw",
    "_ZN3std11collections4hash",
];

/// An address range of a function, and the function's offset in its unit.
pub(super) struct FunctionRange {
    begin: u32,
    end: u32,
    entry: u32,
}

/// The name of a function: its own attributes, or the entry that has them.
#[derive(Clone, Copy, Default)]
pub(super) struct NameAttributes {
    linkage_name: Option<AttributeValue<Slice>>,
    name: Option<AttributeValue<Slice>>,
    /// An abstract instance, or a declaration.
    pub origin: Option<AttributeValue<Slice>>,
}

impl NameAttributes {
    /// The name in the entry itself: that of the linker, which contains the path. With legacy mangling it lacks the type arguments, so that
    /// for functions of containers a name with them follows (`runtime::object_type`).
    pub fn own(&self, unit: UnitRef<'_, Slice>) -> Option<(Slice, Option<Slice>)> {
        let string = |value| unit.attr_string(value).ok();
        let (linkage_name, name) = (self.linkage_name.and_then(string), self.name.and_then(string));
        let of_container = |name: Slice| LEGACY_CONTAINERS.iter().any(|path| name.starts_with(path.as_bytes()));
        Some((linkage_name.or(name)?, name.filter(|_| linkage_name.is_some_and(of_container))))
    }

    /// The attributes of the entry at `entry`.
    pub fn read(unit: UnitRef<'_, Slice>, entry: UnitOffset) -> Option<Self> {
        let mut entries = unit.entries_raw(Some(entry)).ok()?;
        let abbreviation = entries.read_abbreviation().ok()??;
        Some(FunctionAttributes::read(unit, &mut entries, abbreviation).ok()?.name)
    }
}

/// The attributes of a function or an inlined call.
#[derive(Default)]
struct FunctionAttributes {
    name: NameAttributes,
    low_pc: Option<u64>,
    high_pc: Option<u64>,
    size: Option<u64>,
    ranges: Option<RangeListsOffset>,
    call: SourcePosition,
}

impl FunctionAttributes {
    fn read(
        unit: UnitRef<'_, Slice>,
        entries: &mut EntriesRaw<'_, Slice>,
        abbreviation: &Abbreviation,
    ) -> gimli::Result<Self> {
        let mut read = Self::default();
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            let value = attribute.value();
            match attribute.name() {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => read.name.linkage_name = Some(value),
                gimli::DW_AT_name => read.name.name = Some(value),
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => read.name.origin = Some(value),
                gimli::DW_AT_low_pc => read.low_pc = unit.attr_address(value)?,
                gimli::DW_AT_high_pc => match value {
                    AttributeValue::Udata(size) => read.size = Some(size),
                    address => read.high_pc = unit.attr_address(address)?,
                },
                gimli::DW_AT_ranges => read.ranges = unit.attr_ranges_offset(value)?,
                // 0 is no file before version 5.
                gimli::DW_AT_call_file => match value {
                    AttributeValue::FileIndex(file) if file > 0 || unit.header.version() >= 5 => {
                        read.call.file = Some(file);
                    }
                    _ => {}
                },
                gimli::DW_AT_call_line => read.call.line = attribute.udata_value().unwrap_or(0) as u32,
                gimli::DW_AT_call_column => read.call.column = attribute.udata_value().unwrap_or(0) as u32,
                _ => {}
            }
        }
        Ok(read)
    }

    fn each_range(&self, unit: UnitRef<'_, Slice>, mut each: impl FnMut(u64, u64)) -> gimli::Result<()> {
        match (self.ranges, self.low_pc) {
            (Some(list), _) => {
                let mut ranges = unit.ranges(list)?;
                while let Some(range) = ranges.next()? {
                    each(range.begin, range.end);
                }
            }
            (None, Some(begin)) => {
                // Wraps for the address -1, which linkers give to removed functions.
                let end = self.high_pc.or(self.size.map(|size| begin.wrapping_add(size)));
                each(begin, end.unwrap_or(begin));
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn contains(&self, unit: UnitRef<'_, Slice>, address: u64) -> gimli::Result<bool> {
        let mut contains = false;
        self.each_range(unit, |begin, end| contains |= begin <= address && address < end)?;
        Ok(contains)
    }
}

/// The ranges of all functions of a unit, sorted by address.
pub(super) fn function_ranges(unit: UnitRef<'_, Slice>) -> gimli::Result<Box<[FunctionRange]>> {
    let mut functions = Vec::new();
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let entry = entries.next_offset().0 as u32;
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if abbreviation.tag() != gimli::DW_TAG_subprogram {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        FunctionAttributes::read(unit, &mut entries, abbreviation)?.each_range(unit, |begin, end| {
            if let (Ok(begin), Ok(end)) = (u32::try_from(begin), u32::try_from(end)) {
                functions.extend((begin < end).then_some(FunctionRange { begin, end, entry }));
            }
        })?;
    }
    functions.sort_unstable_by_key(|function| function.begin);
    Ok(functions.into())
}

/// The entry of the function that contains `address`.
pub(super) fn function_at(functions: &[FunctionRange], address: u64) -> Option<UnitOffset> {
    let after = functions.partition_point(|function| u64::from(function.begin) <= address);
    let function = functions.get(after.checked_sub(1)?).filter(|function| address < u64::from(function.end))?;
    Some(UnitOffset(function.entry as usize))
}

/// A function that executes at an address, and the position of its call in the function before it.
pub(super) struct Executing {
    /// Its entry in the unit, for a function with a name of its own.
    pub entry: UnitOffset,
    pub name: NameAttributes,
    pub call: SourcePosition,
}

/// The function at `entry`, then the calls inlined at `address`, outermost first.
pub(super) fn executing(unit: UnitRef<'_, Slice>, entry: UnitOffset, address: u64) -> gimli::Result<Vec<Executing>> {
    let mut entries = unit.entries_raw(Some(entry))?;
    let root = entries.next_depth();
    let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(Vec::new()) };
    let function = FunctionAttributes::read(unit, &mut entries, abbreviation)?;
    let mut executing = vec![Executing { entry, name: function.name, call: SourcePosition::default() }];
    // Depth of the innermost function that contains the address, and of the subtree that does not.
    let (mut inside, mut skipped) = (root, isize::MAX);
    while !entries.is_empty() {
        let (entry, depth) = (entries.next_offset(), entries.next_depth());
        // Its last child is read; the address is in none of its siblings.
        if depth <= inside {
            break;
        }
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if depth > skipped {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        skipped = isize::MAX;
        match abbreviation.tag() {
            gimli::DW_TAG_subprogram => {
                entries.skip_attributes(abbreviation.attributes())?;
                skipped = depth;
            }
            gimli::DW_TAG_inlined_subroutine => {
                let inlined = FunctionAttributes::read(unit, &mut entries, abbreviation)?;
                if inlined.contains(unit, address)? {
                    inside = depth;
                    executing.push(Executing { entry, name: inlined.name, call: inlined.call });
                } else {
                    skipped = depth;
                }
            }
            _ => entries.skip_attributes(abbreviation.attributes())?,
        }
    }
    Ok(executing)
}
