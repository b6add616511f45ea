//! References into each table: marks the referenced entries and checks that indices are in range.

use super::Findings;
use crate::wire::otlp as wire;

/// The references into one table.
pub(super) struct TableReferences {
    pub name: &'static str,
    pub used: Vec<bool>,
}

impl TableReferences {
    fn new(name: &'static str, length: usize) -> Self {
        Self { name, used: vec![false; length] }
    }

    /// Marks an index; `false` when it is out of range. The path is a closure, since it allocates.
    pub fn mark(&mut self, index: i32, at: impl FnOnce() -> String, findings: &mut Findings) -> bool {
        match usize::try_from(index).ok().and_then(|index| self.used.get_mut(index)) {
            Some(used) => {
                *used = true;
                true
            }
            // Without a table, index 0 means the empty value. The missing table is a separate finding.
            None if index == 0 => true,
            None => {
                let (name, length) = (self.name, self.used.len());
                findings.error(at(), "index", || {
                    format!("Index {index} is outside {name}, which has {length} entries; receivers fail or drop the profile.")
                });
                false
            }
        }
    }
}

/// All tables of a dictionary.
pub(super) struct References {
    pub mappings: TableReferences,
    pub locations: TableReferences,
    pub functions: TableReferences,
    pub links: TableReferences,
    pub strings: TableReferences,
    pub attributes: TableReferences,
    pub stacks: TableReferences,
}

impl References {
    pub fn new(dictionary: &wire::ProfilesDictionary) -> Self {
        Self {
            mappings: TableReferences::new("mapping_table", dictionary.mapping_table.len()),
            locations: TableReferences::new("location_table", dictionary.location_table.len()),
            functions: TableReferences::new("function_table", dictionary.function_table.len()),
            links: TableReferences::new("link_table", dictionary.link_table.len()),
            strings: TableReferences::new("string_table", dictionary.string_table.len()),
            attributes: TableReferences::new("attribute_table", dictionary.attribute_table.len()),
            stacks: TableReferences::new("stack_table", dictionary.stack_table.len()),
        }
    }

    /// Marks a list of attributes and checks that their keys are unique.
    pub fn mark_attributes(
        &mut self,
        indices: &[i32],
        dictionary: &wire::ProfilesDictionary,
        at: impl Fn() -> String,
        findings: &mut Findings,
    ) {
        let mut keys = Vec::with_capacity(indices.len());
        for (nth, &index) in indices.iter().enumerate() {
            if !self.attributes.mark(index, || format!("{}[{nth}]", at()), findings) {
                continue;
            }
            match usize::try_from(index).ok().and_then(|index| dictionary.attribute_table.get(index)) {
                Some(_) if index == 0 => findings.error(format!("{}[{nth}]", at()), "attribute-0", || {
                    "Index 0 is the empty attribute; omit it.".to_owned()
                }),
                Some(attribute) => keys.push(attribute.key_strindex),
                None => {}
            }
        }
        keys.sort_unstable();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            let key = text(dictionary, pair[0]);
            findings.error(at(), "attribute-key", || {
                format!("The attribute key {key:?} occurs more than once; keys must be unique.")
            });
        }
    }
}

/// A string of the table; "" when the index is out of range.
pub(super) fn text(dictionary: &wire::ProfilesDictionary, index: i32) -> &str {
    usize::try_from(index).ok().and_then(|index| dictionary.string_table.get(index)).map_or("", String::as_str)
}
