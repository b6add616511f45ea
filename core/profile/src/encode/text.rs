//! A text form of a whole request, in an order that does not depend on ids: for display, snapshots and comparison. Two
//! requests are equivalent if and only if their texts are equal.

use std::fmt::Write;

use crate::*;

/// The text.
pub fn encode(data: &ProfilesData) -> String {
    let mut blocks: Vec<String> = data.profiles().map(|(resource, profile)| block(data, resource, profile)).collect();
    blocks.sort_unstable();
    blocks.join("\n")
}

fn block(data: &ProfilesData, resource: &ResourceProfiles, profile: &Profile) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_head(&mut out, data, resource, profile);
    let mut samples: Vec<String> = profile.samples.iter().map(|sample| sample_text(data, sample)).collect();
    samples.sort_unstable();
    out + &samples.concat()
}

fn write_head(
    out: &mut String,
    data: &ProfilesData,
    resource: &ResourceProfiles,
    profile: &Profile,
) -> std::fmt::Result {
    let ValueType { kind, unit } = &profile.sample_type;
    write!(out, "profile {kind}/{unit}")?;
    if let Some(ValueType { kind, unit }) = &profile.exact_type {
        write!(out, " exact {kind}/{unit}")?;
    }
    if !profile.period_type.is_empty() || profile.period != 0 {
        write!(out, " period {} {}/{}", profile.period, profile.period_type.kind, profile.period_type.unit)?;
    }
    writeln!(out)?;
    writeln!(out, "  window {} + {} ns", profile.time_unix_nano, profile.duration_nano)?;
    if profile.profile_id != [0; 16] {
        writeln!(out, "  id {}", hex::encode(profile.profile_id))?;
    }
    if profile.dropped_attributes_count > 0 {
        writeln!(out, "  dropped attributes {}", profile.dropped_attributes_count)?;
    }
    writeln!(out, "  scope {:?} {:?}", resource.scope.name, resource.scope.version)?;
    let mut attributes: Vec<AttributeRef<'_>> = resource.resource.iter().map(Attribute::as_ref).collect();
    attributes.sort_unstable();
    for attribute in attributes {
        writeln!(out, "  resource {}", attribute_text(attribute))?;
    }
    for attribute in sorted_set(data, profile.attributes) {
        writeln!(out, "  attribute {attribute}")?;
    }
    Ok(())
}

fn sample_text(data: &ProfilesData, sample: &Sample) -> String {
    let mut out = format!("  sample values {:?}", sample.values);
    if !sample.timestamps_unix_nano.is_empty() {
        let _ = write!(out, " at {:?}", sample.timestamps_unix_nano);
    }
    if sample.exact_value != 0 {
        let _ = write!(out, " exact {}", sample.exact_value);
    }
    out.push('\n');
    let span = data.dictionary.get_span(sample.link);
    let Link { trace_id, span_id } = span.link;
    if (trace_id, span_id) != ([0; 16], [0; 8]) {
        let below =
            if span.is_below() { format!(" below {}", hex::encode(span.root().span_id)) } else { String::new() };
        let _ = writeln!(out, "    link {} {}{below}", hex::encode(trace_id), hex::encode(span_id));
    }
    for attribute in sorted_set(data, sample.attributes) {
        let _ = writeln!(out, "    label {attribute}");
    }
    for &location in data.dictionary.get_stack(sample.stack) {
        let _ = write_location(&mut out, data, location);
    }
    out
}

fn write_location(out: &mut String, data: &ProfilesData, id: LocationId) -> std::fmt::Result {
    let location = data.dictionary.get_location(id);
    let text = |id| data.dictionary.get_string(id);
    let mut mark = "at";
    for line in location.lines {
        let function = data.dictionary.get_function(line.function);
        write!(out, "    {mark} {:?}", text(function.name))?;
        if !function.system_name.is_empty() && function.system_name != function.name {
            write!(out, " = {:?}", text(function.system_name))?;
        }
        write!(out, " {:?}:{}", text(function.filename), line.line)?;
        if line.column != 0 {
            write!(out, ":{}", line.column)?;
        }
        if function.start_line != 0 {
            write!(out, " from {}", function.start_line)?;
        }
        writeln!(out)?;
        mark = "inlined in";
    }
    if location.lines.is_empty() {
        writeln!(out, "    at nameless")?;
    }
    if location.address != 0 {
        writeln!(out, "      address {:#x}", location.address)?;
    }
    if !location.mapping.is_empty() {
        let mapping = data.dictionary.get_mapping(location.mapping);
        let Mapping { memory_start, memory_limit, file_offset, .. } = mapping;
        write!(out, "      mapping {:?} {memory_start:#x}-{memory_limit:#x}+{file_offset:#x}", text(mapping.filename))?;
        for attribute in sorted_set(data, mapping.attributes) {
            write!(out, " {attribute}")?;
        }
        writeln!(out)?;
    }
    for attribute in sorted_set(data, location.attributes) {
        writeln!(out, "      attribute {attribute}")?;
    }
    Ok(())
}

fn sorted_set(data: &ProfilesData, set: AttributeSetId) -> Vec<String> {
    let mut attributes: Vec<AttributeRef<'_>> = data.dictionary.attributes_of(set).collect();
    attributes.sort_unstable();
    attributes.into_iter().map(attribute_text).collect()
}

fn attribute_text(attribute: AttributeRef<'_>) -> String {
    let value = match attribute.value {
        Value::String(text) => format!("{text:?}"),
        Value::Double(bits) => format!("{:?}", f64::from_bits(bits)),
        other => other.to_string(),
    };
    let unit = if attribute.unit.is_empty() { String::new() } else { format!(" {}", attribute.unit) };
    format!("{}={value}{unit}", attribute.key)
}
