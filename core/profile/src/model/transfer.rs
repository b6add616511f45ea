//! Copies samples from one dictionary into another; each entry is interned once. Shared by merging, filtering and splitting.

use super::dictionary::{StoredAttribute, StoredValue};
use super::*;

/// Target ids by source id; `None` until the first use.
type CopiedIds<T> = Vec<Option<T>>;

/// Copies entries from one dictionary to another, and remembers their new ids.
pub struct Transfer<'f, 't> {
    from: &'f Dictionary,
    /// The target.
    pub to: &'t mut Dictionary,
    strings: CopiedIds<StringId>,
    functions: CopiedIds<FunctionId>,
    mappings: CopiedIds<MappingId>,
    locations: CopiedIds<LocationId>,
    stacks: CopiedIds<StackId>,
    links: CopiedIds<LinkId>,
    attributes: CopiedIds<AttributeId>,
    attribute_sets: CopiedIds<AttributeSetId>,
}

/// Returns the memoized target id, or computes and stores it.
macro_rules! memoized {
    ($transfer:ident . $known:ident [ $id:expr ], $compute:expr) => {{
        let at = $id.index();
        if let Some(Some(found)) = $transfer.$known.get(at) {
            return *found;
        }
        let new = $compute;
        if let Some(slot) = $transfer.$known.get_mut(at) {
            *slot = Some(new);
        }
        new
    }};
}

impl<'f, 't> Transfer<'f, 't> {
    /// Copies nothing yet.
    pub fn new(from: &'f Dictionary, to: &'t mut Dictionary) -> Self {
        let lens = from.lens();
        Self {
            from,
            to,
            strings: vec![None; lens.strings],
            functions: vec![None; lens.functions],
            mappings: vec![None; lens.mappings],
            locations: vec![None; lens.locations],
            stacks: vec![None; lens.stacks],
            links: vec![None; lens.links],
            attributes: vec![None; lens.attributes],
            attribute_sets: vec![None; lens.attribute_sets],
        }
    }

    /// Copies all mappings, in their order: the first of a pprof file is that of the program.
    pub fn mappings(&mut self) {
        for id in 0..self.mappings.len() {
            self.mapping(MappingId(id as u32));
        }
    }

    /// The sample with ids of the target.
    pub fn sample(&mut self, sample: &Sample) -> Sample {
        let mut copy = sample.clone();
        self.renumber(&mut copy);
        copy
    }

    /// Replaces the ids of a sample by those of the target.
    pub fn renumber(&mut self, sample: &mut Sample) {
        sample.stack = self.stack(sample.stack);
        sample.attributes = self.attribute_set(sample.attributes);
        sample.link = self.link(sample.link);
    }

    /// The profile without its samples, with ids of the target.
    pub fn empty_profile(&mut self, profile: &Profile) -> Profile {
        Profile {
            sample_type: profile.sample_type.clone(),
            period_type: profile.period_type.clone(),
            period: profile.period,
            time_unix_nano: profile.time_unix_nano,
            duration_nano: profile.duration_nano,
            profile_id: profile.profile_id,
            samples: Vec::new(),
            attributes: self.attribute_set(profile.attributes),
            dropped_attributes_count: profile.dropped_attributes_count,
            exact_type: profile.exact_type.clone(),
        }
    }

    fn string(&mut self, id: StringId) -> StringId {
        memoized!(self.strings[id], self.to.string(self.from.get_string(id)))
    }

    fn function(&mut self, id: FunctionId) -> FunctionId {
        memoized!(self.functions[id], {
            let Function { name, system_name, filename, start_line } = self.from.get_function(id);
            let function = Function {
                name: self.string(name),
                system_name: self.string(system_name),
                filename: self.string(filename),
                start_line,
            };
            self.to.function(function)
        })
    }

    fn mapping(&mut self, id: MappingId) -> MappingId {
        memoized!(self.mappings[id], {
            let mapping = self.from.get_mapping(id);
            let filename = self.string(mapping.filename);
            let attributes = self.attribute_set(mapping.attributes);
            self.to.mapping(Mapping { filename, attributes, ..mapping })
        })
    }

    fn location(&mut self, id: LocationId) -> LocationId {
        memoized!(self.locations[id], {
            let location = self.from.get_location(id);
            let mapping = self.mapping(location.mapping);
            let attributes = self.attribute_set(location.attributes);
            let mut lines = location.lines.to_vec();
            for line in &mut lines {
                line.function = self.function(line.function);
            }
            self.to.location(Location { mapping, address: location.address, lines: &lines, attributes })
        })
    }

    /// The stack with ids of the target.
    pub fn stack(&mut self, id: StackId) -> StackId {
        memoized!(self.stacks[id], {
            let locations: Vec<LocationId> = self.from.get_stack(id).iter().map(|&id| self.location(id)).collect();
            self.to.stack(&locations)
        })
    }

    /// The link in the target.
    pub fn link(&mut self, id: LinkId) -> LinkId {
        memoized!(self.links[id], self.to.link(self.from.get_span(id)))
    }

    fn attribute(&mut self, id: AttributeId) -> AttributeId {
        memoized!(self.attributes[id], {
            let StoredAttribute { key, value, unit } = self.from.get_stored_attribute(id);
            let key = self.string(key);
            let value = match value {
                StoredValue::String(text) => StoredValue::String(self.string(text)),
                number => number,
            };
            let unit = self.string(unit);
            self.to.stored_attribute(StoredAttribute { key, value, unit })
        })
    }

    /// The set with ids of the target.
    pub fn attribute_set(&mut self, id: AttributeSetId) -> AttributeSetId {
        memoized!(self.attribute_sets[id], {
            let attributes: Vec<AttributeId> =
                self.from.get_attribute_set(id).iter().map(|&id| self.attribute(id)).collect();
            self.to.attribute_set(&attributes)
        })
    }
}
