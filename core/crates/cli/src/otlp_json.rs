//! Writes profiles as OTLP/JSON: the protobuf JSON mapping with OpenTelemetry's exceptions (ids in hex, enums as numbers),
//! which the Collector receives and its file exporter writes. Called by `convert --to json`.

use spanprof_profile::{
    Attribute, AttributeId, AttributeSetId, LocationId, Profile, ProfilesData, ResourceProfiles, Sample, StackId,
    StringId, Value, ValueType,
};

use crate::json::Json;

/// One line of JSON. Every table is written in full: the dictionary must contain only entries that samples use.
pub(crate) fn encode(data: &ProfilesData) -> String {
    let mut strings = StringIndex { data, appended: Vec::new() };
    let mut json = Json::new();
    json.object(|json| {
        json.key("resourceProfiles").array(|json| {
            for resource in &data.resources {
                json.object(|json| resource_profiles(json, resource, &mut strings));
            }
        });
        json.key("dictionary").object(|json| dictionary(json, data, &mut strings));
    });
    json.finish() + "\n"
}

/// Index of each string in the string table: the dictionary's strings, then those that only the wire format needs.
struct StringIndex<'a> {
    data: &'a ProfilesData,
    appended: Vec<String>,
}

impl StringIndex<'_> {
    fn index(&mut self, text: &str) -> u32 {
        if let Some(StringId(id)) = self.data.dictionary.find_string(text) {
            return id;
        }
        let first = self.data.dictionary.lens().strings;
        let at = self.appended.iter().position(|other| other == text).unwrap_or_else(|| {
            self.appended.push(text.to_owned());
            self.appended.len() - 1
        });
        (first + at) as u32
    }
}

fn resource_profiles(json: &mut Json, resource: &ResourceProfiles, strings: &mut StringIndex<'_>) {
    json.key("resource").object(|json| {
        json.key("attributes").array(|json| {
            for Attribute { key, value: attribute_value, .. } in &resource.resource {
                json.object(|json| {
                    json.key("key").string(key).key("value");
                    value(json, attribute_value.as_ref());
                });
            }
        });
    });
    json.key("scopeProfiles").array(|json| {
        json.object(|json| {
            json.key("scope").object(|json| {
                json.key("name").string(&resource.scope.name).key("version").string(&resource.scope.version);
            });
            json.key("profiles").array(|json| {
                for profile in &resource.profiles {
                    json.object(|json| write_profile(json, profile, strings));
                }
            });
        });
    });
}

fn write_profile(json: &mut Json, profile: &Profile, strings: &mut StringIndex<'_>) {
    let mut value_type = |json: &mut Json, name: &str, of: &ValueType| {
        let (kind, unit) = (strings.index(&of.kind), strings.index(&of.unit));
        json.key(name).object(|json| {
            json.key("typeStrindex").number(kind).key("unitStrindex").number(unit);
        });
    };
    value_type(json, "sampleType", &profile.sample_type);
    value_type(json, "periodType", &profile.period_type);
    integer(json, "period", profile.period);
    integer(json, "timeUnixNano", profile.time_unix_nano);
    integer(json, "durationNano", profile.duration_nano);
    if profile.profile_id != [0; 16] {
        json.key("profileId").string(&hex::encode(profile.profile_id));
    }
    if profile.dropped_attributes_count != 0 {
        json.key("droppedAttributesCount").number(profile.dropped_attributes_count);
    }
    attribute_indices(json, strings.data, profile.attributes);
    json.key("samples").array(|json| {
        for sample in &profile.samples {
            json.object(|json| write_sample(json, sample, strings.data));
        }
    });
}

fn write_sample(json: &mut Json, sample: &Sample, data: &ProfilesData) {
    json.key("stackIndex").number(sample.stack.0);
    attribute_indices(json, data, sample.attributes);
    if !sample.link.is_empty() {
        json.key("linkIndex").number(sample.link.0);
    }
    if !sample.values.is_empty() {
        json.key("values").array(|json| {
            for value in &sample.values {
                json.string(&value.to_string());
            }
        });
    }
    if !sample.timestamps_unix_nano.is_empty() {
        json.key("timestampsUnixNano").array(|json| {
            for time in &sample.timestamps_unix_nano {
                json.string(&time.to_string());
            }
        });
    }
}

fn dictionary(json: &mut Json, data: &ProfilesData, strings: &mut StringIndex<'_>) {
    let tables = &data.dictionary;
    let lens = tables.lens();
    json.key("mappingTable").array(|json| {
        for mapping in tables.mappings() {
            json.object(|json| {
                integer(json, "memoryStart", mapping.memory_start);
                integer(json, "memoryLimit", mapping.memory_limit);
                integer(json, "fileOffset", mapping.file_offset);
                json.key("filenameStrindex").number(mapping.filename.0);
                attribute_indices(json, data, mapping.attributes);
            });
        }
    });
    json.key("locationTable").array(|json| {
        for at in 0..lens.locations {
            let location = tables.get_location(LocationId(at as u32));
            json.object(|json| {
                json.key("mappingIndex").number(location.mapping.0);
                integer(json, "address", location.address);
                json.key("lines").array(|json| {
                    for line in location.lines {
                        json.object(|json| {
                            json.key("functionIndex").number(line.function.0);
                            integer(json, "line", line.line);
                            integer(json, "column", line.column);
                        });
                    }
                });
                attribute_indices(json, data, location.attributes);
            });
        }
    });
    json.key("functionTable").array(|json| {
        for function in tables.functions() {
            json.object(|json| {
                json.key("nameStrindex").number(function.name.0);
                json.key("systemNameStrindex").number(function.system_name.0);
                json.key("filenameStrindex").number(function.filename.0);
                integer(json, "startLine", function.start_line);
            });
        }
    });
    json.key("linkTable").array(|json| {
        for (at, link) in tables.links().iter().enumerate() {
            json.object(|json| {
                // Entry 0 has no ids: one receiver refuses zeros there, every receiver accepts their absence.
                if at > 0 {
                    json.key("traceId").string(&hex::encode(link.trace_id));
                    json.key("spanId").string(&hex::encode(link.span_id));
                }
            });
        }
    });
    json.key("attributeTable").array(|json| {
        for at in 0..lens.attributes {
            let attribute = tables.get_attribute(AttributeId(at as u32));
            let (key, unit) = (strings.index(attribute.key), strings.index(attribute.unit));
            json.object(|json| {
                if at > 0 {
                    json.key("keyStrindex").number(key).key("value");
                    value(json, attribute.value);
                    json.key("unitStrindex").number(unit);
                }
            });
        }
    });
    json.key("stackTable").array(|json| {
        for at in 0..lens.stacks {
            json.object(|json| {
                json.key("locationIndices").array(|json| {
                    for location in tables.get_stack(StackId(at as u32)) {
                        json.number(location.0);
                    }
                });
            });
        }
    });
    json.key("stringTable").array(|json| {
        for (_, text) in tables.strings() {
            json.string(text);
        }
        for text in &strings.appended {
            json.string(text);
        }
    });
}

fn attribute_indices(json: &mut Json, data: &ProfilesData, set: AttributeSetId) {
    if !set.is_empty() {
        json.key("attributeIndices").array(|json| {
            for attribute in data.dictionary.get_attribute_set(set) {
                json.number(attribute.0);
            }
        });
    }
}

/// A 64-bit number is a string in protobuf's JSON mapping; zero is omitted.
fn integer(json: &mut Json, name: &str, value: impl Into<i128>) {
    let value: i128 = value.into();
    if value != 0 {
        json.key(name).string(&value.to_string());
    }
}

fn value(json: &mut Json, value: Value<'_>) {
    json.object(|json| {
        match value {
            Value::String(text) => json.key("stringValue").string(text),
            Value::Int(number) => json.key("intValue").string(&number.to_string()),
            Value::Bool(flag) => json.key("boolValue").boolean(flag),
            Value::Double(bits) => json.key("doubleValue").double(f64::from_bits(bits)),
        };
    });
}
