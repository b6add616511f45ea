//! Rules of the dictionary: sentinels, indices in entries, duplicates, orphans.

use std::collections::HashMap;
use std::hash::Hash;

use prost::Message;

use super::references::{text, References, TableReferences};
use super::Findings;
use crate::wire::otlp as wire;

/// `used` already contains the references of samples and profiles; this function adds those of the entries.
pub(super) fn check(dictionary: &wire::ProfilesDictionary, used: &mut References, findings: &mut Findings) {
    entries(dictionary, used, findings);
    sentinels(dictionary, findings);
    duplicates("string_table", dictionary.string_table.iter(), findings);
    duplicates("stack_table", dictionary.stack_table.iter(), findings);
    duplicates("location_table", dictionary.location_table.iter(), findings);
    duplicates("function_table", dictionary.function_table.iter(), findings);
    duplicates("mapping_table", dictionary.mapping_table.iter(), findings);
    duplicates("link_table", dictionary.link_table.iter(), findings);
    // Attributes contain floats, which are not hashable; their encoded bytes are.
    duplicates("attribute_table", dictionary.attribute_table.iter().map(Message::encode_to_vec), findings);
    for table in
        [&used.stacks, &used.locations, &used.mappings, &used.functions, &used.links, &used.attributes, &used.strings]
    {
        orphans(table, findings);
    }
}

/// Marks the references of all entries, orphans included: an orphan is one finding, without findings for the entries that
/// only it refers to.
fn entries(dictionary: &wire::ProfilesDictionary, used: &mut References, findings: &mut Findings) {
    let at = |table: &str, nth: usize, field: &str| format!("dictionary.{table}[{nth}].{field}");
    for (nth, stack) in dictionary.stack_table.iter().enumerate() {
        for (depth, &index) in stack.location_indices.iter().enumerate() {
            used.locations.mark(index, || at("stack_table", nth, &format!("location_indices[{depth}]")), findings);
        }
        if stack.location_indices.len() > 1000 {
            findings.warn(at("stack_table", nth, "location_indices"), "depth", || {
                format!("{} locations; Pyroscope truncates stacks at 1000.", stack.location_indices.len())
            });
        }
    }
    for (nth, location) in dictionary.location_table.iter().enumerate() {
        used.mappings.mark(location.mapping_index, || at("location_table", nth, "mapping_index"), findings);
        for (line, entry) in location.lines.iter().enumerate() {
            let path = || at("location_table", nth, &format!("lines[{line}].function_index"));
            used.functions.mark(entry.function_index, path, findings);
            if entry.line < 0 || entry.column < 0 {
                findings.error(at("location_table", nth, &format!("lines[{line}]")), "line", || {
                    "Line and column must not be negative.".to_owned()
                });
            }
        }
        let path = || at("location_table", nth, "attribute_indices");
        used.mark_attributes(&location.attribute_indices, dictionary, path, findings);
    }
    for (nth, mapping) in dictionary.mapping_table.iter().enumerate() {
        used.strings.mark(mapping.filename_strindex, || at("mapping_table", nth, "filename_strindex"), findings);
        let path = || at("mapping_table", nth, "attribute_indices");
        used.mark_attributes(&mapping.attribute_indices, dictionary, path, findings);
        if mapping.memory_limit < mapping.memory_start {
            findings.error(at("mapping_table", nth, "memory_limit"), "mapping-range", || {
                "The mapping ends before it starts.".to_owned()
            });
        }
        let has_build_id = mapping.attribute_indices.iter().any(|index| {
            let attribute = usize::try_from(*index).ok().and_then(|index| dictionary.attribute_table.get(index));
            attribute.is_some_and(|attribute| {
                text(dictionary, attribute.key_strindex).starts_with("process.executable.build_id.")
            })
        });
        if nth > 0 && !has_build_id {
            findings.warn(at("mapping_table", nth, "attribute_indices"), "build-id", || {
                "The mapping has no process.executable.build_id; receivers cannot find its symbols.".to_owned()
            });
        }
    }
    for (nth, function) in dictionary.function_table.iter().enumerate() {
        for (field, index) in [
            ("name_strindex", function.name_strindex),
            ("system_name_strindex", function.system_name_strindex),
            ("filename_strindex", function.filename_strindex),
        ] {
            used.strings.mark(index, || at("function_table", nth, field), findings);
        }
    }
    for (nth, attribute) in dictionary.attribute_table.iter().enumerate() {
        used.strings.mark(attribute.key_strindex, || at("attribute_table", nth, "key_strindex"), findings);
        used.strings.mark(attribute.unit_strindex, || at("attribute_table", nth, "unit_strindex"), findings);
        if let Some(wire::any_value::Value::StringValueStrindex(index)) =
            attribute.value.as_ref().and_then(|value| value.value.as_ref())
        {
            used.strings.mark(*index, || at("attribute_table", nth, "value.string_value_strindex"), findings);
        }
        if nth > 0 && attribute.key_strindex == 0 {
            findings.error(at("attribute_table", nth, "key_strindex"), "key-empty", || {
                "The attribute has no key.".to_owned()
            });
        }
    }
    for (nth, link) in dictionary.link_table.iter().enumerate().skip(1) {
        let lengths = (link.trace_id.len(), link.span_id.len());
        if lengths != (16, 8) {
            let only_span = lengths == (0, 8);
            let path = format!("dictionary.link_table[{nth}]");
            let sentence = || {
                format!("The trace id has {} bytes and the span id {}; they must have 16 and 8.", lengths.0, lengths.1)
            };
            findings.error(path, "link-ids", || match only_span {
                true => sentence()
                    + " The key link=span writes it for Pyroscope 1.20 to 2.0, which stores a series for each trace.",
                false => sentence(),
            });
        }
    }
}

fn sentinels(dictionary: &wire::ProfilesDictionary, findings: &mut Findings) {
    let mut sentinel = |name: &str, first: Option<bool>| match first {
        None => findings.error(format!("dictionary.{name}"), "no-sentinel", || {
            format!("{name} is empty; entry 0 must exist and be the empty value.")
        }),
        Some(false) => findings.error(format!("dictionary.{name}[0]"), "sentinel", || {
            format!("Entry 0 of {name} must be the empty value: index 0 means \"none\".")
        }),
        Some(true) => {}
    };
    sentinel("mapping_table", dictionary.mapping_table.first().map(|first| *first == Default::default()));
    sentinel("location_table", dictionary.location_table.first().map(|first| *first == Default::default()));
    sentinel("function_table", dictionary.function_table.first().map(|first| *first == Default::default()));
    sentinel("string_table", dictionary.string_table.first().map(String::is_empty));
    sentinel(
        "attribute_table",
        dictionary.attribute_table.first().map(|first| {
            first.key_strindex == 0
                && first.unit_strindex == 0
                && first.value.as_ref().is_none_or(|value| value.value.is_none())
        }),
    );
    sentinel("stack_table", dictionary.stack_table.first().map(|first| first.location_indices.is_empty()));
    let zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let link = dictionary.link_table.first();
    sentinel("link_table", link.map(|first| zero(&first.trace_id) && zero(&first.span_id)));
    if link.is_some_and(|first| !(first.trace_id.is_empty() && first.span_id.is_empty())) {
        findings.error("dictionary.link_table[0]", "link-sentinel", || {
            "The empty link has ids of zero bytes; profcheck and Parca accept it only without ids.".to_owned()
        });
    }
}

fn duplicates<T: Hash + Eq>(name: &str, entries: impl Iterator<Item = T>, findings: &mut Findings) {
    let mut seen = HashMap::new();
    for (nth, entry) in entries.enumerate() {
        if let Some(first) = seen.get(&entry) {
            findings.warn(format!("dictionary.{name}[{nth}]"), "duplicate", || {
                format!("The entry equals entry {first}; entries should be unique.")
            });
        } else {
            seen.insert(entry, nth);
        }
    }
}

fn orphans(table: &TableReferences, findings: &mut Findings) {
    let name = table.name;
    for (nth, _) in table.used.iter().enumerate().skip(1).filter(|(_, used)| !**used) {
        findings
            .warn(format!("dictionary.{name}[{nth}]"), "orphan", || "Nothing refers to the entry; omit it.".to_owned());
    }
}
