//! The dictionary entries that the samples of a request refer to, and their wire indices. Index 0 is the empty value; the
//! rest is numbered in order of first use, so no orphan is written.

use super::shape::{shape, SampleShape};
use crate::encode::numbering::WireNumbering;
use crate::*;

/// The numberings of all tables.
pub(super) struct Used<'p> {
    pub strings: WireNumbering,
    /// Names of value types that are not in the dictionary; they follow its strings.
    pub more_strings: Vec<&'p str>,
    pub functions: WireNumbering,
    pub mappings: WireNumbering,
    pub locations: WireNumbering,
    pub stacks: WireNumbering,
    pub links: WireNumbering,
    pub attributes: WireNumbering,
    /// Attributes with local roots; they follow the dictionary's attributes.
    pub local_roots: Vec<String>,
    /// By profile: the position of its local roots.
    pub local_roots_of: Vec<Option<usize>>,
}

impl<'p> Used<'p> {
    /// Numbers the entries that `profiles` refer to.
    pub fn by(dictionary: &Dictionary, profiles: impl Iterator<Item = &'p Profile>) -> Self {
        let lens = dictionary.lens();
        let mut used = Self {
            strings: WireNumbering::new(lens.strings),
            more_strings: Vec::new(),
            functions: WireNumbering::new(lens.functions),
            mappings: WireNumbering::new(lens.mappings),
            locations: WireNumbering::new(lens.locations),
            stacks: WireNumbering::new(lens.stacks),
            links: WireNumbering::new(lens.links),
            attributes: WireNumbering::new(lens.attributes),
            local_roots: Vec::new(),
            local_roots_of: Vec::new(),
        };
        let mut sets = WireNumbering::new(lens.attribute_sets);
        for profile in profiles {
            for value_type in [&profile.sample_type, &profile.period_type] {
                used.text(dictionary, &value_type.kind);
                used.text(dictionary, &value_type.unit);
            }
            used.set(dictionary, &mut sets, profile.attributes);
            let samples = || profile.samples.iter().filter(|sample| shape(sample) != SampleShape::Nothing);
            used.local_roots(dictionary, LocalRoots::text(samples().map(|sample| dictionary.get_span(sample.link))));
            for sample in samples() {
                used.links.mark(sample.link.0);
                used.set(dictionary, &mut sets, sample.attributes);
                if used.stacks.mark(sample.stack.0) {
                    for &location in dictionary.get_stack(sample.stack) {
                        used.location(dictionary, &mut sets, location);
                    }
                }
            }
        }
        // The first mapping of a pprof file is that of the program, so their order is kept.
        used.mappings.sort();
        used
    }

    fn text(&mut self, dictionary: &Dictionary, text: &'p str) {
        match dictionary.find_string(text) {
            Some(id) => drop(self.strings.mark(id.0)),
            None if self.more_strings.contains(&text) => {}
            None => self.more_strings.push(text),
        }
    }

    fn local_roots(&mut self, dictionary: &Dictionary, text: Option<String>) {
        let position = text.map(|text| {
            self.text(dictionary, LocalRoots::KEY);
            self.local_roots.iter().position(|known| *known == text).unwrap_or_else(|| {
                self.local_roots.push(text);
                self.local_roots.len() - 1
            })
        });
        self.local_roots_of.push(position);
    }

    /// The wire index of a value type's name.
    pub fn text_index(&self, dictionary: &Dictionary, text: &str) -> u64 {
        match dictionary.find_string(text) {
            Some(id) => self.strings.wire(id.0),
            None => self
                .more_strings
                .iter()
                .position(|more| *more == text)
                .map_or(0, |at| (self.strings.ids().len() + at) as u64),
        }
    }

    fn location(&mut self, dictionary: &Dictionary, sets: &mut WireNumbering, id: LocationId) {
        if !self.locations.mark(id.0) {
            return;
        }
        let location = dictionary.get_location(id);
        self.set(dictionary, sets, location.attributes);
        if self.mappings.mark(location.mapping.0) {
            let mapping = dictionary.get_mapping(location.mapping);
            self.strings.mark(mapping.filename.0);
            self.set(dictionary, sets, mapping.attributes);
        }
        for line in location.lines {
            if self.functions.mark(line.function.0) {
                let function = dictionary.get_function(line.function);
                for text in [function.name, function.system_name, function.filename] {
                    self.strings.mark(text.0);
                }
            }
        }
    }

    fn set(&mut self, dictionary: &Dictionary, sets: &mut WireNumbering, set: AttributeSetId) {
        if !sets.mark(set.0) {
            return;
        }
        for &attribute in dictionary.get_attribute_set(set) {
            if self.attributes.mark(attribute.0) {
                let stored = dictionary.get_stored_attribute(attribute);
                self.strings.mark(stored.key.0);
                self.strings.mark(stored.unit.0);
            }
        }
    }
}
