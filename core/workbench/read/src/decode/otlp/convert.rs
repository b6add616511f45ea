//! Converts one request of the wire to the model: tables first, each entry interned once and every index checked, then the
//! profiles. Equal entries are merged; orphans are interned and stay unused.

use hashbrown::HashMap;

use super::super::{DecodeError, DecodeLimits};
use super::attributes::{owned_attributes, scalar, write_text, CopyBudget};
use super::encoded::{EncodedList, EncodedParts};
use super::protobuf_error;
use super::tables::{decode_error, lookup, DecodedTables};
use crate::wire::otlp as wire;
use crate::wire::otlp::any_value::Value as Wire;
use spanprof_profile::*;
use spanprof_profile::{StoredAttribute, StoredValue};

/// Appends the request to `data`. Its stacks and samples are in the message or in `encoded`.
pub(super) fn convert(
    request: &wire::ProfilesData,
    encoded: &EncodedParts<'_>,
    data: &mut ProfilesData,
    limits: &DecodeLimits,
) -> Result<(), DecodeError> {
    let mut budget = CopyBudget::new(limits);
    let absent = wire::ProfilesDictionary::default();
    let dictionary = request.dictionary.as_ref().unwrap_or(&absent);
    let texts: Vec<&str> = dictionary.string_table.iter().map(String::as_str).collect();
    let tables = tables(dictionary, encoded, &texts, &mut data.dictionary, limits, &mut budget)?;
    let mut position = 0;
    for (nth, resource_profiles) in request.resource_profiles.iter().enumerate() {
        let at = format!("resource_profiles[{nth}]");
        let attributes = resource_profiles.resource.as_ref().map_or(&[][..], |resource| &resource.attributes);
        let dropped = resource_profiles.resource.as_ref().map_or(0, |resource| resource.dropped_attributes_count);
        let resource = owned_attributes(attributes, &tables, &mut budget, || format!("{at}.resource.attributes"))?;
        for (nth, scope_profiles) in resource_profiles.scope_profiles.iter().enumerate() {
            let at = format!("{at}.scope_profiles[{nth}]");
            let scope = scope_profiles
                .scope
                .as_ref()
                .map_or(Scope::default(), |scope| Scope { name: scope.name.clone(), version: scope.version.clone() });
            let mut profiles = Vec::with_capacity(scope_profiles.profiles.len());
            for (nth, profile) in scope_profiles.profiles.iter().enumerate() {
                let at = format!("{at}.profiles[{nth}]");
                let samples = encoded.samples(position);
                position += 1;
                profiles.push(convert_profile(
                    profile,
                    samples,
                    &tables,
                    &mut data.dictionary,
                    &mut budget,
                    limits,
                    &at,
                )?);
            }
            transform::join_exact_values(&mut profiles);
            if nth > 0 {
                for attribute in &resource {
                    budget.copy(&attribute.key, || at.clone())?;
                    if let AttributeValue::String(text) = &attribute.value {
                        budget.copy(text, || at.clone())?;
                    }
                }
            }
            let dropped_attributes_count = dropped;
            data.resources.push(ResourceProfiles {
                resource: resource.clone(),
                scope,
                profiles,
                dropped_attributes_count,
            });
        }
    }
    Ok(())
}

fn tables<'w>(
    wire: &wire::ProfilesDictionary,
    encoded: &EncodedParts<'_>,
    texts: &'w [&'w str],
    dictionary: &mut Dictionary,
    limits: &DecodeLimits,
    budget: &mut CopyBudget,
) -> Result<DecodedTables<'w>, DecodeError> {
    for (name, length) in [
        ("mapping_table", wire.mapping_table.len()),
        ("location_table", wire.location_table.len()),
        ("function_table", wire.function_table.len()),
        ("link_table", wire.link_table.len()),
        ("string_table", wire.string_table.len()),
        ("attribute_table", wire.attribute_table.len()),
        ("stack_table", wire.stack_table.len() + encoded.stack_count()),
    ] {
        if length > limits.table_entries {
            let expected = format!("at most {} entries", limits.table_entries);
            return Err(decode_error(format!("dictionary.{name}"), expected, length.to_string()));
        }
    }
    if let Some(first) = texts.first().filter(|first| !first.is_empty()) {
        return Err(decode_error("dictionary.string_table[0]".to_owned(), "\"\"", format!("{first:.40?}")));
    }
    let strings: Vec<StringId> = texts.iter().map(|text| dictionary.string(text)).collect();
    let mut tables = DecodedTables { texts, strings, attributes: Vec::new(), stacks: Vec::new(), links: Vec::new() };
    tables.attributes = each(&wire.attribute_table, |nth, attribute| {
        attribute_of(attribute, &tables, dictionary, budget, || format!("dictionary.attribute_table[{nth}]"))
    })?;
    let strings = &tables.strings;
    let functions = each(&wire.function_table, |nth, function| {
        let at = |field: &str| format!("dictionary.function_table[{nth}].{field}");
        Ok(dictionary.function(Function {
            name: lookup(strings, function.name_strindex, || at("name_strindex"))?,
            system_name: lookup(strings, function.system_name_strindex, || at("system_name_strindex"))?,
            filename: lookup(strings, function.filename_strindex, || at("filename_strindex"))?,
            start_line: function.start_line,
        }))
    })?;
    let mappings = each(&wire.mapping_table, |nth, mapping| {
        let at = |field: &str| format!("dictionary.mapping_table[{nth}].{field}");
        let attributes =
            set_of(&mapping.attribute_indices, &tables.attributes, dictionary, || at("attribute_indices"))?;
        Ok(dictionary.mapping(Mapping {
            memory_start: mapping.memory_start,
            memory_limit: mapping.memory_limit,
            file_offset: mapping.file_offset,
            filename: lookup(strings, mapping.filename_strindex, || at("filename_strindex"))?,
            attributes,
        }))
    })?;
    let mut lines = Vec::new();
    let locations = each(&wire.location_table, |nth, location| {
        let at = |field: &str| format!("dictionary.location_table[{nth}].{field}");
        lines.clear();
        for (nth, line) in location.lines.iter().enumerate() {
            let function = lookup(&functions, line.function_index, || at(&format!("lines[{nth}].function_index")))?;
            lines.push(Line { function, line: line.line, column: line.column });
        }
        let mapping = lookup(&mappings, location.mapping_index, || at("mapping_index"))?;
        let attributes =
            set_of(&location.attribute_indices, &tables.attributes, dictionary, || at("attribute_indices"))?;
        Ok(dictionary.location(Location { mapping, address: location.address, lines: &lines, attributes }))
    })?;
    let mut stack_locations = Vec::new();
    let mut stacks = Vec::with_capacity(wire.stack_table.len() + encoded.stack_count());
    dictionary.reserve_stacks(stacks.capacity());
    let mut add_stack = |stack: &wire::Stack| {
        let at = || format!("dictionary.stack_table[{}].location_indices", stacks.len());
        if stack.location_indices.len() > limits.stack_depth {
            let expected = format!("at most {} locations", limits.stack_depth);
            return Err(decode_error(at(), expected, stack.location_indices.len().to_string()));
        }
        stack_locations.clear();
        for (nth, index) in stack.location_indices.iter().enumerate() {
            stack_locations.push(lookup(&locations, *index, || format!("{}[{nth}]", at()))?);
        }
        stacks.push(dictionary.stack(&stack_locations));
        Ok(())
    };
    wire.stack_table.iter().try_for_each(&mut add_stack)?;
    encoded.for_each_stack(|stack| add_stack(stack.map_err(protobuf_error)?))?;
    tables.stacks = stacks;
    tables.links = each(&wire.link_table, |nth, link| link_of(link, nth, dictionary))?;
    Ok(tables)
}

fn each<W, T>(
    table: &[W],
    mut convert: impl FnMut(usize, &W) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    table.iter().enumerate().map(|(nth, entry)| convert(nth, entry)).collect()
}

/// Link 0 means "no link", so it must be empty.
fn link_of(link: &wire::Link, nth: usize, dictionary: &mut Dictionary) -> Result<LinkId, DecodeError> {
    fn id<const N: usize>(bytes: &[u8], at: impl FnOnce() -> String) -> Result<[u8; N], DecodeError> {
        match bytes {
            [] => Ok([0; N]),
            _ => bytes.try_into().map_err(|_| decode_error(at(), format!("{N} bytes"), bytes.len().to_string())),
        }
    }
    let at = |field: &str| format!("dictionary.link_table[{nth}].{field}");
    let link = Link { trace_id: id(&link.trace_id, || at("trace_id"))?, span_id: id(&link.span_id, || at("span_id"))? };
    if nth == 0 && !link.is_empty() {
        return Err(decode_error("dictionary.link_table[0]".to_owned(), "the empty link", "a trace or span id"));
    }
    Ok(dictionary.link(link))
}

fn attribute_of(
    attribute: &wire::KeyValueAndUnit,
    tables: &DecodedTables<'_>,
    dictionary: &mut Dictionary,
    budget: &mut CopyBudget,
    at: impl Fn() -> String,
) -> Result<AttributeId, DecodeError> {
    let key = lookup(&tables.strings, attribute.key_strindex, || format!("{}.key_strindex", at()))?;
    let unit = lookup(&tables.strings, attribute.unit_strindex, || format!("{}.unit_strindex", at()))?;
    let value = match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        None => StoredValue::default(),
        Some(Wire::StringValue(text)) => StoredValue::String(dictionary.string(text)),
        Some(Wire::StringValueStrindex(index)) => {
            StoredValue::String(lookup(&tables.strings, *index, || format!("{}.value.string_value_strindex", at()))?)
        }
        Some(value) => match scalar(value) {
            Some(AttributeValue::Int(number)) => StoredValue::Int(number),
            Some(AttributeValue::Bool(flag)) => StoredValue::Bool(flag),
            Some(AttributeValue::Double(bits)) => StoredValue::Double(bits),
            _ => {
                let mut text = String::new();
                write_text(value, tables, budget, &mut text, &at)?;
                StoredValue::String(dictionary.string(&text))
            }
        },
    };
    Ok(dictionary.stored_attribute(StoredAttribute { key, value, unit }))
}

fn set_of(
    indices: &[i32],
    attributes: &[AttributeId],
    dictionary: &mut Dictionary,
    at: impl Fn() -> String,
) -> Result<AttributeSetId, DecodeError> {
    if indices.is_empty() {
        return Ok(AttributeSetId::EMPTY);
    }
    let mut set = Vec::with_capacity(indices.len());
    for (nth, index) in indices.iter().enumerate() {
        let attribute = lookup(attributes, *index, || format!("{}[{nth}]", at()))?;
        if !attribute.is_empty() {
            set.push(attribute);
        }
    }
    Ok(dictionary.attribute_set(&set))
}

/// The attributes of a profile. The local roots of its spans become part of the links.
fn profile_attributes(
    profile: &wire::Profile,
    tables: &DecodedTables<'_>,
    dictionary: &mut Dictionary,
    at: &str,
) -> Result<(AttributeSetId, LocalRoots), DecodeError> {
    let indices = &profile.attribute_indices;
    let all = set_of(indices, &tables.attributes, dictionary, || format!("{at}.attribute_indices"))?;
    let ids = dictionary.get_attribute_set(all).to_vec();
    let is_local_roots = |id: &AttributeId| dictionary.get_attribute(*id).key == LocalRoots::KEY;
    let (roots, others): (Vec<_>, Vec<_>) = ids.into_iter().partition(is_local_roots);
    let Some(roots) = roots.first() else { return Ok((all, LocalRoots::default())) };
    let roots = LocalRoots::parse(&dictionary.get_attribute(*roots).value.to_string());
    Ok((dictionary.attribute_set(&others), roots))
}

fn convert_profile(
    profile: &wire::Profile,
    encoded: EncodedList<'_>,
    tables: &DecodedTables<'_>,
    dictionary: &mut Dictionary,
    budget: &mut CopyBudget,
    limits: &DecodeLimits,
    at: &str,
) -> Result<Profile, DecodeError> {
    let sample_count = profile.samples.len() + encoded.count;
    if sample_count > limits.table_entries {
        let expected = format!("at most {} entries", limits.table_entries);
        return Err(decode_error(format!("{at}.samples"), expected, sample_count.to_string()));
    }
    let mut value_type = |wire: &Option<wire::ValueType>, field: &str| {
        let wire = wire.unwrap_or_default();
        let mut text = |index, part: &str| {
            let path = || format!("{at}.{field}.{part}");
            budget.copy(lookup(tables.texts, index, path)?, path)
        };
        Ok::<_, DecodeError>(ValueType {
            kind: text(wire.type_strindex, "type_strindex")?,
            unit: text(wire.unit_strindex, "unit_strindex")?,
        })
    };
    let sample_type = value_type(&profile.sample_type, "sample_type")?;
    let period_type = value_type(&profile.period_type, "period_type")?;
    let (attributes, local_roots) = profile_attributes(profile, tables, dictionary, at)?;
    let mut placed: HashMap<LinkId, LinkId> = HashMap::new();
    let mut samples = Vec::with_capacity(sample_count);
    let mut add_sample = |sample: &wire::Sample| {
        let nth = samples.len();
        let at = |field: &str| format!("{at}.samples[{nth}].{field}");
        let (values, times) = (&sample.values, &sample.timestamps_unix_nano);
        if !values.is_empty() && !times.is_empty() && values.len() != times.len() {
            return Err(decode_error(
                at("values"),
                format!("{}, one per timestamp", times.len()),
                values.len().to_string(),
            ));
        }
        samples.push(Sample {
            stack: lookup(&tables.stacks, sample.stack_index, || at("stack_index"))?,
            attributes: set_of(&sample.attribute_indices, &tables.attributes, dictionary, || at("attribute_indices"))?,
            link: match lookup(&tables.links, sample.link_index, || at("link_index"))? {
                link if local_roots.is_empty() => link,
                link => *placed.entry(link).or_insert_with(|| {
                    let span = dictionary.get_link(link);
                    dictionary.link(local_roots.place(span))
                }),
            },
            values: values.clone(),
            timestamps_unix_nano: times.clone(),
            exact_value: 0,
        });
        Ok(())
    };
    profile.samples.iter().try_for_each(&mut add_sample)?;
    encoded.for_each_sample(|sample| add_sample(sample.map_err(protobuf_error)?))?;
    let profile_id = match &profile.profile_id[..] {
        [] => [0; 16],
        id => id
            .try_into()
            .map_err(|_| decode_error(format!("{at}.profile_id"), "16 bytes", profile.profile_id.len().to_string()))?,
    };
    Ok(Profile {
        sample_type,
        period_type,
        period: profile.period,
        time_unix_nano: profile.time_unix_nano,
        duration_nano: profile.duration_nano,
        profile_id,
        samples,
        attributes,
        dropped_attributes_count: profile.dropped_attributes_count,
        exact_type: None,
    })
}
