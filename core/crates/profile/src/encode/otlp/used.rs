//! Which entries of a dictionary the samples of a request refer to, and the index each gets on the wire. Index 0 stays
//! the empty value; the rest is numbered in order of first use, so no orphan is written.

use super::shape::{shape, Shape};
use crate::encode::order::Order;
use crate::*;

/// The orders of all tables.
pub(super) struct Used<'p> {
    pub strings: Order,
    /// Names of value types that the dictionary does not hold; they follow its strings.
    pub more_strings: Vec<&'p str>,
    pub functions: Order,
    pub mappings: Order,
    pub locations: Order,
    pub stacks: Order,
    pub links: Order,
    pub attributes: Order,
}

impl<'p> Used<'p> {
    /// Walks what `profiles` refer to.
    pub fn by(dictionary: &Dictionary, profiles: impl Iterator<Item = &'p Profile>) -> Self {
        let lens = dictionary.lens();
        let mut used = Self {
            strings: Order::new(lens.strings),
            more_strings: Vec::new(),
            functions: Order::new(lens.functions),
            mappings: Order::new(lens.mappings),
            locations: Order::new(lens.locations),
            stacks: Order::new(lens.stacks),
            links: Order::new(lens.links),
            attributes: Order::new(lens.attributes),
        };
        let mut sets = Order::new(lens.attribute_sets);
        for profile in profiles {
            for value_type in [&profile.sample_type, &profile.period_type] {
                used.text(dictionary, &value_type.kind);
                used.text(dictionary, &value_type.unit);
            }
            used.set(dictionary, &mut sets, profile.attributes);
            for sample in profile.samples.iter().filter(|sample| shape(sample) != Shape::Nothing) {
                used.links.mark(sample.link.0);
                used.set(dictionary, &mut sets, sample.attributes);
                if used.stacks.mark(sample.stack.0) {
                    for &location in dictionary.get_stack(sample.stack) {
                        used.location(dictionary, &mut sets, location);
                    }
                }
            }
        }
        used
    }

    fn text(&mut self, dictionary: &Dictionary, text: &'p str) {
        match dictionary.find_string(text) {
            Some(id) => drop(self.strings.mark(id.0)),
            None if self.more_strings.contains(&text) => {}
            None => self.more_strings.push(text),
        }
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

    fn location(&mut self, dictionary: &Dictionary, sets: &mut Order, id: LocationId) {
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

    fn set(&mut self, dictionary: &Dictionary, sets: &mut Order, set: AttributeSetId) {
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
