//! Writes the messages of google/pprof's `profile.proto`. Ids are positions plus one, so none is 0.

use std::borrow::Cow;

use super::super::numbering::WireNumbering;
use super::columns::{Columns, SampleRow};
use super::names;
use crate::encode::message_writer::MessageWriter;
use crate::model::TextTable;
use crate::*;

/// The name of a label in the file, by its key; `None` omits the label.
pub(super) type LabelName<'n> = &'n dyn Fn(&str) -> Option<Cow<'_, str>>;

/// The file, uncompressed.
pub(super) fn write(data: &ProfilesData, label_name: LabelName<'_>) -> Vec<u8> {
    let columns = Columns::of(data);
    let lens = data.dictionary.lens();
    let mut file = PprofEncoder {
        dictionary: &data.dictionary,
        label_name,
        out: MessageWriter::default(),
        strings: TextTable::new(),
        locations: WireNumbering::new(lens.locations),
        functions: WireNumbering::new(lens.functions),
        mappings: WireNumbering::new(lens.mappings),
    };
    for value_type in &columns.types {
        file.value_type(1, value_type);
    }
    let services: Vec<&str> = data.resources.iter().map(ResourceProfiles::service_name).collect();
    for (nth, row) in columns.rows.iter().enumerate() {
        file.sample(*row, columns.values_of(nth), row.service.map(|at| services[at]));
    }
    file.locations();
    file.header(data, &columns);
    for at in 0..file.strings.len() {
        file.out.present_bytes(6, file.strings.get(at).as_bytes());
    }
    file.out.into_bytes()
}

struct PprofEncoder<'d> {
    dictionary: &'d Dictionary,
    label_name: LabelName<'d>,
    out: MessageWriter,
    strings: TextTable,
    locations: WireNumbering,
    functions: WireNumbering,
    mappings: WireNumbering,
}

impl PprofEncoder<'_> {
    fn text(&mut self, text: &str) -> u64 {
        u64::from(self.strings.intern(text))
    }

    fn value_type(&mut self, field: u32, value_type: &ValueType) {
        let (kind, unit) = (self.text(&value_type.kind), self.text(&value_type.unit));
        self.out.message(field, |out| {
            out.uint(1, kind);
            out.uint(2, unit);
        });
    }

    fn sample(&mut self, row: SampleRow, values: &[i64], service: Option<&str>) {
        let stack = self.dictionary.get_stack(row.stack);
        for location in stack {
            self.locations.mark(location.0);
        }
        let labels = self.labels(row, service);
        let Self { out, locations, .. } = self;
        out.message(2, |out| {
            out.packed_uints(1, stack.iter().map(|location| locations.wire(location.0) + 1));
            out.packed_uints(2, values.iter().map(|value| *value as u64));
            for [key, text, number, unit] in labels {
                out.message(3, |out| {
                    out.uint(1, key);
                    out.uint(2, text);
                    out.uint(3, number);
                    out.uint(4, unit);
                });
            }
        });
    }

    /// The labels, each as (key, text, number, unit).
    fn labels(&mut self, row: SampleRow, service: Option<&str>) -> Vec<[u64; 4]> {
        let dictionary = self.dictionary;
        let mut labels = Vec::new();
        let mut text_label = |strings: &mut TextTable, key: &str, text: &str| {
            // String index 0 would be decoded as the number 0.
            let key = u64::from(strings.intern(key));
            // Two keys may have one name.
            if !text.is_empty() && labels.iter().all(|known: &[u64; 4]| known[0] != key) {
                labels.push([key, u64::from(strings.intern(text)), 0, 0]);
            }
        };
        let mut numbers = Vec::new();
        let mut service = service;
        for attribute in dictionary.attributes_of(row.attributes) {
            if attribute.key == "service.name" {
                service = None;
            }
            let Some(key) = (self.label_name)(attribute.key) else { continue };
            match attribute.value {
                Value::Int(number) => {
                    let (key, unit) = (self.strings.intern(&key), self.strings.intern(attribute.unit));
                    numbers.push([u64::from(key), 0, number as u64, u64::from(unit)]);
                }
                Value::String(text) => text_label(&mut self.strings, &key, text),
                other => text_label(&mut self.strings, &key, &other.to_string()),
            }
        }
        if let Some(service) = service {
            text_label(&mut self.strings, "service.name", service);
        }
        let span = dictionary.get_span(row.link);
        let Link { trace_id, span_id } = span.link;
        if trace_id != [0; 16] {
            text_label(&mut self.strings, names::TRACE_ID, &hex::encode(trace_id));
        }
        if span_id != [0; 8] {
            text_label(&mut self.strings, names::SPAN_ID, &hex::encode(span_id));
        }
        if let Some(key) = (self.label_name)(names::LOCAL_ROOT).filter(|_| span.is_below()) {
            text_label(&mut self.strings, &key, &hex::encode(span.root().span_id));
        }
        if let Some(time) = row.time_unix_nano {
            let (key, unit) =
                (self.strings.intern(names::END_TIMESTAMP), self.strings.intern(names::END_TIMESTAMP_UNIT));
            numbers.push([u64::from(key), 0, time, u64::from(unit)]);
        }
        labels.extend(numbers);
        labels
    }

    /// Writes locations, functions and mappings. Symbolized locations without a mapping refer to an empty mapping with
    /// `has_functions`, since readers would symbolize them otherwise.
    fn locations(&mut self) {
        let dictionary = self.dictionary;
        // The `has_…` flags of each mapping, derived from its locations; attributes of the mapping override them.
        let mut derived_flags = vec![[false; 4]; dictionary.mappings().len()];
        let locations = std::mem::replace(&mut self.locations, WireNumbering::new(0));
        let has_mapping = |location: &Location<'_>| !location.lines.is_empty() || !location.mapping.is_empty();
        for &id in locations.marked() {
            let location = dictionary.get_location(LocationId(id));
            if has_mapping(&location) {
                self.mappings.mark(location.mapping.0);
            }
        }
        // The first mapping is that of the program, so the order of a decoded file is kept.
        self.mappings.sort();
        for &id in locations.marked() {
            let location = dictionary.get_location(LocationId(id));
            let mapping_id = if has_mapping(&location) { self.mappings.wire(location.mapping.0) + 1 } else { 0 };
            for line in location.lines {
                self.functions.mark(line.function.0);
                if let Some(flags) = derived_flags.get_mut(location.mapping.index()) {
                    flags[0] = true;
                    flags[1] |= !dictionary.get_function(line.function).filename.is_empty();
                    flags[2] |= line.line > 0;
                    flags[3] |= location.lines.len() > 1;
                }
            }
            let folded =
                dictionary.attributes_of(location.attributes).any(|attribute| attribute.key == names::IS_FOLDED);
            let Self { out, functions, .. } = self;
            out.message(4, |out| {
                out.uint(1, locations.wire(id) + 1);
                out.uint(2, mapping_id);
                out.uint(3, location.address);
                for line in location.lines {
                    out.message(4, |out| {
                        out.uint(1, functions.wire(line.function.0) + 1);
                        out.int(2, line.line);
                        out.int(3, line.column);
                    });
                }
                out.uint(5, u64::from(folded));
            });
        }
        let functions = std::mem::replace(&mut self.functions, WireNumbering::new(0));
        for &id in functions.marked() {
            let function = dictionary.get_function(FunctionId(id));
            let [name, system_name, filename] =
                [function.name, function.system_name, function.filename].map(|id| self.text(dictionary.get_string(id)));
            self.out.message(5, |out| {
                out.uint(1, functions.wire(id) + 1);
                out.uint(2, name);
                out.uint(3, system_name);
                out.uint(4, filename);
                out.int(5, function.start_line);
            });
        }
        let mappings = std::mem::replace(&mut self.mappings, WireNumbering::new(0));
        for &id in mappings.marked() {
            self.mapping(MappingId(id), mappings.wire(id) + 1, derived_flags[id as usize]);
        }
    }

    fn mapping(&mut self, id: MappingId, wire_id: u64, mut flags: [bool; 4]) {
        let dictionary = self.dictionary;
        let mapping = dictionary.get_mapping(id);
        let mut build_id = "";
        for attribute in dictionary.attributes_of(mapping.attributes) {
            match (attribute.value, names::HAS.iter().position(|key| *key == attribute.key)) {
                (Value::Bool(flag), Some(nth)) => flags[nth] = flag,
                (Value::String(text), None) if attribute.key == names::BUILD_ID => build_id = text,
                _ => {}
            }
        }
        let (filename, build_id) = (self.text(dictionary.get_string(mapping.filename)), self.text(build_id));
        self.out.message(3, |out| {
            out.uint(1, wire_id);
            out.uint(2, mapping.memory_start);
            out.uint(3, mapping.memory_limit);
            out.uint(4, mapping.file_offset);
            out.uint(5, filename);
            out.uint(6, build_id);
            for (field, flag) in (7..).zip(flags) {
                out.uint(field, u64::from(flag));
            }
        });
    }

    fn header(&mut self, data: &ProfilesData, columns: &Columns) {
        let profiles = || data.profiles().map(|(_, profile)| profile);
        let start = profiles().map(|profile| profile.time_unix_nano).min().unwrap_or(0);
        let end = profiles().map(Profile::end_unix_nano).max().unwrap_or(0);
        let settings: Vec<AttributeRef<'_>> = profiles()
            .next()
            .map(|profile| data.dictionary.attributes_of(profile.attributes).collect())
            .unwrap_or_default();
        let setting = |key: &str| {
            settings.iter().find_map(|attribute| match attribute.value {
                Value::String(text) if attribute.key == key => Some(text),
                _ => None,
            })
        };
        for (field, key) in [(7, names::DROP_FRAMES), (8, names::KEEP_FRAMES), (15, names::DOC_URL)] {
            if let Some(text) = setting(key) {
                let index = self.text(text);
                self.out.uint(field, index);
            }
        }
        // Signed in pprof, unsigned in OTLP.
        for (field, nanos) in [(9, start), (10, end - start)] {
            self.out.int(field, i64::try_from(nanos).unwrap_or(i64::MAX));
        }
        let with_period = || profiles().filter(|profile| !profile.period_type.is_empty() || profile.period != 0);
        let sampled = with_period().find(|profile| profile.type_name() == "cpu").or_else(|| with_period().next());
        if let Some(profile) = sampled {
            self.value_type(11, &profile.period_type);
            self.out.int(12, profile.period);
        }
        let comments: Vec<u64> = common_attributes(data)
            .map(|attribute| format!("{}={}", attribute.key, attribute.value.as_ref()))
            .chain(setting(names::COMMENT).into_iter().flat_map(|text| text.split('\n').map(str::to_owned)))
            .map(|comment| self.text(&comment))
            .collect();
        self.out.packed_uints(13, comments.into_iter());
        let default = setting(names::DEFAULT_SAMPLE_TYPE).map(str::to_owned).or_else(|| {
            let cpu = columns.types.iter().find(|known| known.kind == "cpu");
            cpu.map(|known| known.kind.clone())
        });
        if let Some(kind) = default {
            let index = self.text(&kind);
            self.out.uint(14, index);
        }
    }
}

/// Attributes that all resources have in common.
fn common_attributes(data: &ProfilesData) -> impl Iterator<Item = &Attribute> {
    let first = data.resources.first().map_or(&[][..], |resource| &resource.resource);
    first.iter().filter(|attribute| data.resources.iter().all(|resource| resource.resource.contains(attribute)))
}
