//! The dictionary: tables shared by all profiles of one request, and their interning. A method with the name of an entry
//! interns (`string`, `stack`…), `get_…` reads. Owned by the window's thread or by a decoder; not synchronized.
//!
//! Invariant: equal values get equal ids, id 0 is the empty value, and ids are assigned in ascending order. An unassigned id
//! reads as the empty value; decoders reject such ids.

use hashbrown::HashMap;

use super::table::{SequenceTable, Table, TextTable};
use super::*;

/// An attribute as ids. Its string value is in the string table too; an encoder that writes it inline omits it there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoredAttribute {
    /// Name.
    pub key: StringId,
    /// Value.
    pub value: StoredValue,
    /// Unit in UCUM; empty for none.
    pub unit: StringId,
}

/// The value of a [`StoredAttribute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoredValue {
    /// Text.
    String(StringId),
    /// A 64-bit integer.
    Int(i64),
    /// A boolean.
    Bool(bool),
    /// The bits of a 64-bit float.
    Double(u64),
}

impl Default for StoredValue {
    fn default() -> Self {
        Self::String(StringId::EMPTY)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct StoredLocation {
    mapping: MappingId,
    address: u64,
    lines: u32,
    attributes: AttributeSetId,
}

/// Entries per table, the empty value included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DictionaryLens {
    /// Strings.
    pub strings: usize,
    /// Functions.
    pub functions: usize,
    /// Mapped files.
    pub mappings: usize,
    /// Locations.
    pub locations: usize,
    /// Stacks.
    pub stacks: usize,
    /// Span links.
    pub links: usize,
    /// Attributes.
    pub attributes: usize,
    /// Sets of attributes.
    pub attribute_sets: usize,
}

/// The tables. See the invariant of the module.
#[derive(Clone, Debug)]
pub struct Dictionary {
    strings: TextTable,
    functions: Table<Function>,
    mappings: Table<Mapping>,
    line_lists: SequenceTable<Line>,
    locations: Table<StoredLocation>,
    stacks: SequenceTable<LocationId>,
    links: Table<TreeSpan>,
    attributes: Table<StoredAttribute>,
    attribute_sets: SequenceTable<AttributeId>,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self::new()
    }
}

impl Dictionary {
    /// Tables with only their empty values.
    pub fn new() -> Self {
        Self {
            strings: TextTable::new(),
            functions: Table::new(),
            mappings: Table::new(),
            line_lists: SequenceTable::new(),
            locations: Table::new(),
            stacks: SequenceTable::new(),
            links: Table::new(),
            attributes: Table::new(),
            attribute_sets: SequenceTable::new(),
        }
    }

    /// Removes every entry and keeps the memory for the next window. Invalidates all ids.
    pub fn clear(&mut self) {
        self.strings.clear();
        self.functions.clear();
        self.mappings.clear();
        self.line_lists.clear();
        self.locations.clear();
        self.stacks.clear();
        self.links.clear();
        self.attributes.clear();
        self.attribute_sets.clear();
    }

    /// Interns a string.
    pub fn string(&mut self, text: &str) -> StringId {
        StringId(self.strings.intern(text))
    }

    /// Removes the texts of strings that no other entry refers to. Their ids read as the empty string.
    pub(crate) fn erase_strings(&mut self, mut erased: Vec<StringId>) {
        erased.sort_unstable();
        erased.dedup();
        let erased: Vec<u32> = erased.into_iter().map(|id| id.0).filter(|id| *id != 0).collect();
        self.strings.erase(&erased);
    }

    /// Replaces functions in place; the result has the id of the equal function for each that is not needed any more.
    pub(crate) fn replace_functions(&mut self, changes: &[(FunctionId, Function)]) -> HashMap<FunctionId, FunctionId> {
        let changes: Vec<_> = changes.iter().map(|(id, new)| (id.0, *new)).collect();
        let moved = self.functions.replace(&changes).into_iter();
        moved.map(|(old, new)| (FunctionId(old), FunctionId(new))).collect()
    }

    /// As [`Self::replace_functions`].
    pub(crate) fn replace_mappings(&mut self, changes: &[(MappingId, Mapping)]) -> HashMap<MappingId, MappingId> {
        let changes: Vec<_> = changes.iter().map(|(id, new)| (id.0, *new)).collect();
        let moved = self.mappings.replace(&changes).into_iter();
        moved.map(|(old, new)| (MappingId(old), MappingId(new))).collect()
    }

    /// As [`Self::replace_functions`], for mappings, addresses and lines of locations.
    pub(crate) fn replace_locations(
        &mut self,
        changes: &[(LocationId, MappingId, u64, Vec<Line>)],
    ) -> HashMap<LocationId, LocationId> {
        let mut stored = Vec::with_capacity(changes.len());
        for &(id, mapping, address, ref lines) in changes {
            let lines = self.line_lists.intern(lines);
            stored.push((id.0, StoredLocation { mapping, address, lines, ..self.locations.get(id.index()) }));
        }
        let moved = self.locations.replace(&stored).into_iter();
        moved.map(|(old, new)| (LocationId(old), LocationId(new))).collect()
    }

    /// Replaces or removes (`None`) locations in all stacks. A stack that loses all of them becomes `[if_empty]`. The result has
    /// the new id of each stack whose old id must not be used any more.
    pub(crate) fn replace_in_stacks(
        &mut self,
        replaced: &HashMap<LocationId, Option<LocationId>>,
        if_empty: LocationId,
    ) -> HashMap<StackId, StackId> {
        let moved = self.stacks.replace_items(replaced, if_empty).into_iter();
        moved.map(|(old, new)| (StackId(old), StackId(new))).collect()
    }

    /// Interns a function.
    pub fn function(&mut self, function: Function) -> FunctionId {
        FunctionId(self.functions.intern(function))
    }

    /// Interns a mapping.
    pub fn mapping(&mut self, mapping: Mapping) -> MappingId {
        MappingId(self.mappings.intern(mapping))
    }

    /// Interns a location.
    pub fn location(&mut self, location: Location<'_>) -> LocationId {
        let lines = self.line_lists.intern(location.lines);
        let Location { mapping, address, attributes, .. } = location;
        LocationId(self.locations.intern(StoredLocation { mapping, address, lines, attributes }))
    }

    /// Interns a stack, leaf first.
    pub fn stack(&mut self, locations: &[LocationId]) -> StackId {
        StackId(self.stacks.intern(locations))
    }

    /// Allocates memory for further stacks at once.
    pub fn reserve_stacks(&mut self, count: usize) {
        self.stacks.reserve(count);
    }

    /// Interns a link, with or without the local root of its span.
    pub fn link(&mut self, span: impl Into<TreeSpan>) -> LinkId {
        LinkId(self.links.intern(span.into()))
    }

    /// Interns an attribute; `unit` is "" or UCUM.
    pub fn attribute(&mut self, key: &str, value: Value<'_>, unit: &str) -> AttributeId {
        let stored = StoredAttribute {
            key: self.string(key),
            value: match value {
                Value::String(text) => StoredValue::String(self.string(text)),
                Value::Int(number) => StoredValue::Int(number),
                Value::Bool(flag) => StoredValue::Bool(flag),
                Value::Double(bits) => StoredValue::Double(bits),
            },
            unit: self.string(unit),
        };
        self.stored_attribute(stored)
    }

    /// Interns an attribute whose strings are already interned; hashes no text.
    pub fn stored_attribute(&mut self, stored: StoredAttribute) -> AttributeId {
        AttributeId(self.attributes.intern(stored))
    }

    /// Interns a set of attributes. Order and repetition are ignored: a set is stored sorted by id.
    pub fn attribute_set(&mut self, attributes: &[AttributeId]) -> AttributeSetId {
        let sorted = attributes.windows(2).all(|pair| pair[0] < pair[1]);
        AttributeSetId(if sorted {
            self.attribute_sets.intern(attributes)
        } else {
            let mut set = attributes.to_vec();
            set.sort_unstable();
            set.dedup();
            self.attribute_sets.intern(&set)
        })
    }

    /// The attribute set that marks a location's frame type; empty for [`FrameType::Unspecified`].
    pub fn frame_type(&mut self, frame_type: FrameType) -> AttributeSetId {
        let Some(value) = frame_type.as_str() else { return AttributeSetId::EMPTY };
        let attribute = self.attribute(FrameType::KEY, Value::String(value), "");
        self.attribute_set(&[attribute])
    }

    /// The string of an id.
    pub fn get_string(&self, id: StringId) -> &str {
        self.strings.get(id.index())
    }

    /// The id of a string, if it is interned.
    pub fn find_string(&self, text: &str) -> Option<StringId> {
        self.strings.find(text).map(StringId)
    }

    /// The function of an id.
    pub fn get_function(&self, id: FunctionId) -> Function {
        self.functions.get(id.index())
    }

    /// The mapping of an id.
    pub fn get_mapping(&self, id: MappingId) -> Mapping {
        self.mappings.get(id.index())
    }

    /// The location of an id.
    pub fn get_location(&self, id: LocationId) -> Location<'_> {
        let StoredLocation { mapping, address, lines, attributes } = self.locations.get(id.index());
        Location { mapping, address, lines: self.line_lists.get(lines as usize), attributes }
    }

    /// The locations of a stack, leaf first.
    pub fn get_stack(&self, id: StackId) -> &[LocationId] {
        self.stacks.get(id.index())
    }

    /// The link of an id.
    pub fn get_link(&self, id: LinkId) -> Link {
        self.get_span(id).link
    }

    /// The span of an id, with its local root.
    pub fn get_span(&self, id: LinkId) -> TreeSpan {
        self.links.get(id.index())
    }

    /// The attribute of an id, as ids.
    pub fn get_stored_attribute(&self, id: AttributeId) -> StoredAttribute {
        self.attributes.get(id.index())
    }

    /// The attribute of an id.
    pub fn get_attribute(&self, id: AttributeId) -> AttributeRef<'_> {
        let StoredAttribute { key, value, unit } = self.attributes.get(id.index());
        AttributeRef {
            key: self.get_string(key),
            value: match value {
                StoredValue::String(text) => Value::String(self.get_string(text)),
                StoredValue::Int(number) => Value::Int(number),
                StoredValue::Bool(flag) => Value::Bool(flag),
                StoredValue::Double(bits) => Value::Double(bits),
            },
            unit: self.get_string(unit),
        }
    }

    /// The attributes of a set, sorted by id.
    pub fn get_attribute_set(&self, id: AttributeSetId) -> &[AttributeId] {
        self.attribute_sets.get(id.index())
    }

    /// The attributes of a set, resolved.
    pub fn attributes_of(&self, id: AttributeSetId) -> impl Iterator<Item = AttributeRef<'_>> {
        self.get_attribute_set(id).iter().map(|&attribute| self.get_attribute(attribute))
    }

    /// The frame type of a location.
    pub fn frame_type_of(&self, id: LocationId) -> FrameType {
        self.attributes_of(self.locations.get(id.index()).attributes)
            .find_map(|attribute| match attribute {
                AttributeRef { key: FrameType::KEY, value: Value::String(text), .. } => {
                    Some(FrameType::from_wire(text))
                }
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Whether an attribute is the frame type or the origin of a location.
    pub(crate) fn is_of_frame(&self, id: AttributeId) -> bool {
        [FrameType::KEY, FrameType::ORIGIN_KEY].contains(&self.get_string(self.attributes.get(id.index()).key))
    }

    /// All strings with their ids, ascending.
    pub fn strings(&self) -> impl Iterator<Item = (StringId, &str)> {
        (0..self.strings.len()).map(|at| (StringId(at as u32), self.strings.get(at)))
    }

    /// All functions; the position is the id.
    pub fn functions(&self) -> &[Function] {
        self.functions.entries()
    }

    /// All mappings; the position is the id.
    pub fn mappings(&self) -> &[Mapping] {
        self.mappings.entries()
    }

    /// All links; the position is the id.
    pub fn links(&self) -> &[TreeSpan] {
        self.links.entries()
    }

    /// Entries per table.
    pub fn lens(&self) -> DictionaryLens {
        DictionaryLens {
            strings: self.strings.len(),
            functions: self.functions.entries().len(),
            mappings: self.mappings.entries().len(),
            locations: self.locations.entries().len(),
            stacks: self.stacks.len(),
            links: self.links.entries().len(),
            attributes: self.attributes.entries().len(),
            attribute_sets: self.attribute_sets.len(),
        }
    }

    /// Bytes of text in the string table.
    pub fn text_bytes(&self) -> usize {
        self.strings.text_bytes()
    }

    /// Bytes of memory allocated by all tables.
    pub fn memory_bytes(&self) -> usize {
        self.strings.bytes()
            + self.functions.bytes()
            + self.mappings.bytes()
            + self.line_lists.bytes()
            + self.locations.bytes()
            + self.stacks.bytes()
            + self.links.bytes()
            + self.attributes.bytes()
            + self.attribute_sets.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(dictionary: &mut Dictionary, name: &str, line: i64, frame_type: FrameType) -> LocationId {
        let name = dictionary.string(name);
        let function = dictionary.function(Function { name, ..Function::default() });
        let attributes = dictionary.frame_type(frame_type);
        dictionary.location(Location {
            lines: &[Line { function, line, column: 0 }],
            attributes,
            ..Location::default()
        })
    }

    #[test]
    fn every_table_begins_with_its_empty_value() {
        let mut dictionary = Dictionary::new();
        assert_eq!(dictionary.string(""), StringId::EMPTY);
        assert_eq!(dictionary.function(Function::default()), FunctionId::EMPTY);
        assert_eq!(dictionary.mapping(Mapping::default()), MappingId::EMPTY);
        assert_eq!(dictionary.location(Location::default()), LocationId::EMPTY);
        assert_eq!(dictionary.stack(&[]), StackId::EMPTY);
        assert_eq!(dictionary.link(Link::default()), LinkId::EMPTY);
        assert_eq!(dictionary.attribute("", Value::String(""), ""), AttributeId::EMPTY);
        assert_eq!(dictionary.attribute_set(&[]), AttributeSetId::EMPTY);
        let DictionaryLens { strings, functions, mappings, locations, stacks, links, attributes, attribute_sets } =
            dictionary.lens();
        assert_eq!(
            [strings, functions, mappings, locations, stacks, links, attributes, attribute_sets],
            [1; 8],
            "interning empty values adds nothing"
        );
    }

    #[test]
    fn equal_locations_share_an_id_and_another_line_gets_another() {
        let mut dictionary = Dictionary::new();
        let first = location(&mut dictionary, "handle", 3, FrameType::Cpython);
        let again = location(&mut dictionary, "handle", 3, FrameType::Cpython);
        let other = location(&mut dictionary, "handle", 4, FrameType::Cpython);
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert_eq!(dictionary.lens().functions, 2);
        assert_eq!(dictionary.get_location(other).lines[0].line, 4);
        assert_eq!(dictionary.frame_type_of(other), FrameType::Cpython);
        assert_eq!(dictionary.frame_type_of(LocationId::EMPTY), FrameType::Unspecified);
        let stack = dictionary.stack(&[first, other]);
        assert_eq!(dictionary.get_stack(stack), [first, other]);
    }

    #[test]
    fn a_set_of_attributes_has_no_order_and_no_repetition() {
        let mut dictionary = Dictionary::new();
        let route = dictionary.attribute("http.route", Value::String("/cart"), "");
        let size = dictionary.attribute("size", Value::Int(16), "By");
        let set = dictionary.attribute_set(&[route, size]);
        assert_eq!(dictionary.attribute_set(&[size, route, size]), set);
        let texts: Vec<String> =
            dictionary.attributes_of(set).map(|a| format!("{}={}{}", a.key, a.value, a.unit)).collect();
        assert_eq!(texts, ["http.route=/cart", "size=16By"]);
    }

    #[test]
    fn an_unassigned_id_reads_as_empty() {
        let dictionary = Dictionary::new();
        assert_eq!(dictionary.get_string(StringId(9)), "");
        assert_eq!(dictionary.get_location(LocationId(9)), Location::default());
        assert!(dictionary.get_stack(StackId(9)).is_empty());
        assert!(dictionary.get_link(LinkId(9)).is_empty());
        assert_eq!(dictionary.get_attribute(AttributeId(9)).key, "");
    }

    #[test]
    fn clearing_removes_entries_and_keeps_the_memory() {
        let mut dictionary = Dictionary::new();
        for n in 0..100 {
            location(&mut dictionary, &format!("function {n}"), n, FrameType::Native);
        }
        let allocated = dictionary.memory_bytes();
        dictionary.clear();
        assert_eq!(dictionary.lens().locations, 1);
        assert_eq!(dictionary.text_bytes(), 0);
        assert_eq!(dictionary.memory_bytes(), allocated);
        assert_eq!(location(&mut dictionary, "fresh", 1, FrameType::Native), LocationId(1));
    }
}
