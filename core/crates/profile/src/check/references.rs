//! Which entries of each table something refers to, and whether indices are inside.

use super::Findings;
use crate::wire::otlp as wire;

/// One table: its name, and which entries were referred to.
pub(super) struct Table {
    pub name: &'static str,
    pub used: Vec<bool>,
}

impl Table {
    fn new(name: &'static str, length: usize) -> Self {
        Self { name, used: vec![false; length] }
    }

    /// Marks an index; whether it is inside. A path costs an allocation, so it comes as a closure.
    pub fn refer(&mut self, index: i32, at: impl FnOnce() -> String, findings: &mut Findings) -> bool {
        match usize::try_from(index).ok().and_then(|index| self.used.get_mut(index)) {
            Some(used) => {
                *used = true;
                true
            }
            // No table: the empty value was meant. The missing table is a finding of its own.
            None if index == 0 => true,
            None => {
                let (name, length) = (self.name, self.used.len());
                findings.error(at(), "index", || {
                    format!("Index {index} is outside of {name}, which has {length} entries; receivers fail or drop the profile.")
                });
                false
            }
        }
    }
}

/// All tables of a dictionary.
pub(super) struct References {
    pub mappings: Table,
    pub locations: Table,
    pub functions: Table,
    pub links: Table,
    pub strings: Table,
    pub attributes: Table,
    pub stacks: Table,
}

impl References {
    pub fn new(dictionary: &wire::ProfilesDictionary) -> Self {
        Self {
            mappings: Table::new("mapping_table", dictionary.mapping_table.len()),
            locations: Table::new("location_table", dictionary.location_table.len()),
            functions: Table::new("function_table", dictionary.function_table.len()),
            links: Table::new("link_table", dictionary.link_table.len()),
            strings: Table::new("string_table", dictionary.string_table.len()),
            attributes: Table::new("attribute_table", dictionary.attribute_table.len()),
            stacks: Table::new("stack_table", dictionary.stack_table.len()),
        }
    }

    /// Marks a list of attributes and finds keys that come twice.
    pub fn refer_attributes(
        &mut self,
        indices: &[i32],
        dictionary: &wire::ProfilesDictionary,
        at: impl Fn() -> String,
        findings: &mut Findings,
    ) {
        let mut keys = Vec::with_capacity(indices.len());
        for (nth, &index) in indices.iter().enumerate() {
            if !self.attributes.refer(index, || format!("{}[{nth}]", at()), findings) {
                continue;
            }
            match usize::try_from(index).ok().and_then(|index| dictionary.attribute_table.get(index)) {
                Some(_) if index == 0 => findings.error(format!("{}[{nth}]", at()), "attribute-0", || {
                    "Index 0 is the empty attribute and cannot be one; leave it out.".to_owned()
                }),
                Some(attribute) => keys.push(attribute.key_strindex),
                None => {}
            }
        }
        keys.sort_unstable();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            let key = text(dictionary, pair[0]);
            findings.error(at(), "attribute-key", || {
                format!("The attribute key {key:?} comes more than once; keys must be unique.")
            });
        }
    }
}

/// A string of the table, "" when the index is outside.
pub(super) fn text(dictionary: &wire::ProfilesDictionary, index: i32) -> &str {
    usize::try_from(index).ok().and_then(|index| dictionary.string_table.get(index)).map_or("", String::as_str)
}
