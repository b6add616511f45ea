//! Writes one request of the 1.10 schema in a single pass over the entries that [`super::used`] numbered. Fields are in the
//! order of the schema; `wire::otlp` has the same messages for decoding.

use super::shape::{shape, SampleShape};
use super::used::Used;
use crate::encode::message_writer::MessageWriter;
use crate::model::StoredValue;
use crate::*;

const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// The bytes of `ExportProfilesServiceRequest`.
pub(super) fn write(data: &ProfilesData) -> Vec<u8> {
    let has_values = |profile: &&Profile| profile.samples.iter().any(|sample| shape(sample) != SampleShape::Nothing);
    let used = Used::by(&data.dictionary, data.profiles().map(|(_, profile)| profile).filter(has_values));
    let request = Request { dictionary: &data.dictionary, used };
    let mut local_roots = request.used.local_roots_of.iter();
    let mut out = MessageWriter::default();
    // Adjacent scopes of one resource share its message.
    for group in data.resources.chunk_by(|one, next| one.resource == next.resource) {
        if !group.iter().flat_map(|scope| &scope.profiles).any(|profile| has_values(&profile)) {
            continue;
        }
        out.message(1, |out| {
            out.message(1, |out| {
                group[0].resource.iter().for_each(|of_resource| attribute(out, 1, of_resource));
                let dropped = group.iter().map(|scope| scope.dropped_attributes_count).max().unwrap_or_default();
                out.uint(2, u64::from(dropped));
            });
            for scope in group.iter().filter(|scope| scope.profiles.iter().any(|profile| has_values(&profile))) {
                out.message(2, |out| {
                    out.message(1, |out| {
                        out.bytes(1, scope.scope.name.as_bytes());
                        out.bytes(2, scope.scope.version.as_bytes());
                    });
                    for profile in scope.profiles.iter().filter(has_values) {
                        let local_roots = local_roots.next().copied().flatten();
                        out.message(2, |out| request.profile(out, profile, local_roots));
                    }
                    out.bytes(3, schema_url(scope).as_bytes());
                });
            }
            out.bytes(3, group.iter().map(schema_url).find(|url| !url.is_empty()).unwrap_or_default().as_bytes());
        });
    }
    out.message(2, |out| request.tables(out));
    out.into_bytes()
}

/// The version of the semantic conventions of attributes; those of other producers are not known.
fn schema_url(scope: &ResourceProfiles) -> &'static str {
    if scope.scope.name == Scope::spanprof().name {
        SCHEMA_URL
    } else {
        ""
    }
}

/// Inline key and value, never references: receivers drop references that they cannot resolve.
pub(super) fn attribute(out: &mut MessageWriter, field: u32, attribute: &Attribute) {
    out.message(field, |out| {
        out.bytes(1, attribute.key.as_bytes());
        out.message(2, |out| match &attribute.value {
            AttributeValue::String(text) => out.present_bytes(1, text.as_bytes()),
            AttributeValue::Bool(flag) => out.present_uint(2, u64::from(*flag)),
            AttributeValue::Int(number) => out.present_uint(3, *number as u64),
            AttributeValue::Double(bits) => out.present_fixed64(4, *bits),
        });
    });
}

struct Request<'p> {
    dictionary: &'p Dictionary,
    used: Used<'p>,
}

impl Request<'_> {
    fn profile(&self, out: &mut MessageWriter, profile: &Profile, local_roots: Option<usize>) {
        out.message(1, |out| self.value_type(out, &profile.sample_type));
        for sample in &profile.samples {
            self.sample(out, sample);
        }
        out.fixed64(3, profile.time_unix_nano);
        out.uint(4, profile.duration_nano);
        if !profile.period_type.is_empty() {
            out.message(5, |out| self.value_type(out, &profile.period_type));
        }
        out.int(6, profile.period);
        if profile.profile_id != [0; 16] {
            out.bytes(7, &profile.profile_id);
        }
        out.uint(8, u64::from(profile.dropped_attributes_count));
        let own = self.dictionary.get_attribute_set(profile.attributes).iter();
        let local_roots = local_roots.map(|position| (self.used.attributes.ids().len() + position) as u64);
        out.packed_uints(11, own.map(|id| self.used.attributes.wire(id.0)).chain(local_roots));
    }

    fn value_type(&self, out: &mut MessageWriter, value_type: &ValueType) {
        out.uint(1, self.used.text_index(self.dictionary, &value_type.kind));
        out.uint(2, self.used.text_index(self.dictionary, &value_type.unit));
    }

    fn sample(&self, out: &mut MessageWriter, sample: &Sample) {
        let shape = shape(sample);
        if shape == SampleShape::Nothing {
            return;
        }
        out.message(2, |out| {
            out.uint(1, self.used.stacks.wire(sample.stack.0));
            self.attributes(out, 2, sample.attributes);
            out.uint(3, self.used.links.wire(sample.link.0));
            match shape {
                SampleShape::Nothing => {}
                SampleShape::Total(total) => out.packed_uints(4, std::iter::once(total as u64)),
                SampleShape::Timestamps(times) => out.packed_fixed64(5, times),
                SampleShape::Timed(values, times) => {
                    out.packed_uints(4, values.iter().map(|value| *value as u64));
                    out.packed_fixed64(5, times);
                }
            }
        });
    }

    fn attributes(&self, out: &mut MessageWriter, field: u32, set: AttributeSetId) {
        let wire = |attribute: &AttributeId| self.used.attributes.wire(attribute.0);
        out.packed_uints(field, self.dictionary.get_attribute_set(set).iter().map(wire));
    }

    fn tables(&self, out: &mut MessageWriter) {
        let Self { dictionary, used } = self;
        for &id in used.mappings.ids() {
            let mapping = dictionary.get_mapping(MappingId(id));
            out.message(1, |out| {
                out.uint(1, mapping.memory_start);
                out.uint(2, mapping.memory_limit);
                out.uint(3, mapping.file_offset);
                out.uint(4, used.strings.wire(mapping.filename.0));
                self.attributes(out, 5, mapping.attributes);
            });
        }
        for &id in used.locations.ids() {
            let location = dictionary.get_location(LocationId(id));
            out.message(2, |out| {
                out.uint(1, used.mappings.wire(location.mapping.0));
                out.uint(2, location.address);
                for line in location.lines {
                    out.message(3, |out| {
                        out.uint(1, used.functions.wire(line.function.0));
                        out.int(2, line.line);
                        out.int(3, line.column);
                    });
                }
                self.attributes(out, 4, location.attributes);
            });
        }
        for &id in used.functions.ids() {
            let function = dictionary.get_function(FunctionId(id));
            out.message(3, |out| {
                out.uint(1, used.strings.wire(function.name.0));
                out.uint(2, used.strings.wire(function.system_name.0));
                out.uint(3, used.strings.wire(function.filename.0));
                out.int(4, function.start_line);
            });
        }
        for &id in used.links.ids() {
            let Link { trace_id, span_id } = dictionary.get_link(LinkId(id));
            // The empty link is written without ids, since Parca rejects ids of zero bytes. A span id may be alone; with a
            // trace id it always has its 8 bytes.
            out.message(4, |out| {
                if trace_id != [0; 16] {
                    out.bytes(1, &trace_id);
                }
                if span_id != [0; 8] || trace_id != [0; 16] {
                    out.bytes(2, &span_id);
                }
            });
        }
        for &id in used.strings.ids() {
            out.present_bytes(5, dictionary.get_string(StringId(id)).as_bytes());
        }
        for text in &used.more_strings {
            out.present_bytes(5, text.as_bytes());
        }
        for &id in used.attributes.ids() {
            self.attribute(out, AttributeId(id));
        }
        for text in &used.local_roots {
            out.message(6, |out| {
                out.uint(1, used.text_index(dictionary, LocalRoots::KEY));
                out.message(2, |out| out.present_bytes(1, text.as_bytes()));
            });
        }
        for &id in used.stacks.ids() {
            let locations = dictionary.get_stack(StackId(id)).iter();
            out.message(7, |out| out.packed_uints(1, locations.map(|location| used.locations.wire(location.0))));
        }
    }

    fn attribute(&self, out: &mut MessageWriter, id: AttributeId) {
        let stored = self.dictionary.get_stored_attribute(id);
        out.message(6, |out| {
            if id.is_empty() {
                return;
            }
            out.uint(1, self.used.strings.wire(stored.key.0));
            out.message(2, |out| match stored.value {
                StoredValue::String(text) => out.present_bytes(1, self.dictionary.get_string(text).as_bytes()),
                StoredValue::Bool(flag) => out.present_uint(2, u64::from(flag)),
                StoredValue::Int(number) => out.present_uint(3, number as u64),
                StoredValue::Double(bits) => out.present_fixed64(4, bits),
            });
            out.uint(3, self.used.strings.wire(stored.unit.0));
        });
    }
}
