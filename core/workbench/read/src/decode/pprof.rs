//! Decoder of pprof files. Each value type becomes a profile; `samples`/`count` beside the period's type becomes one
//! profile that counts periods and has exact values. The labels `trace_id` and `span_id` become the span link.
//!
//! pprof fields without a counterpart in the model become attributes with OpenTelemetry's names
//! (`pprof.mapping.has_functions`, `pprof.profile.comment`…), so that a round trip through OTLP is lossless.

use std::borrow::Cow;

use hashbrown::HashMap;
use prost::Message;

use super::{decompress, DecodeError, DecodeLimits};
use crate::wire::messages::HasSchema;
use crate::wire::{pprof as wire, scan};
use spanprof_profile::code_origin::OwnCode;
use spanprof_profile::encode::pprof::{self, names};
use spanprof_profile::*;
use spanprof_profile::{StoredAttribute, StoredValue};

pub(crate) const WHAT: &str = "pprof profile";

fn decode_error(at: impl Into<String>, expected: impl Into<String>, got: impl Into<String>) -> DecodeError {
    DecodeError { what: WHAT, at: at.into(), expected: expected.into(), got: got.into() }
}

/// Decodes plain or gzipped bytes.
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<ProfilesData, DecodeError> {
    decode_decompressed(decompress::decompress(WHAT, bytes, limits)?, limits)
}

pub(super) fn check_size(body: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
    scan::scan(WHAT, body, wire::Profile::schema(), limits)
}

pub(super) fn decode_decompressed(body: Cow<'_, [u8]>, limits: &DecodeLimits) -> Result<ProfilesData, DecodeError> {
    check_size(&body, limits)?;
    let mut file =
        wire::Profile::decode(&body[..]).map_err(|error| decode_error("", "a pprof message", error.to_string()))?;
    match file.string_table.first() {
        Some(first) if !first.is_empty() => {
            return Err(decode_error("string_table[0]", "\"\"", format!("{:.40?}", String::from_utf8_lossy(first))));
        }
        None if !body.is_empty() => return Err(decode_error("string_table", "at least \"\"", "no entry")),
        _ => {}
    }
    let mut dictionary = Dictionary::new();
    let texts = std::mem::take(&mut file.string_table);
    let strings = texts.iter().map(|text| dictionary.string(&String::from_utf8_lossy(text))).collect();
    drop(texts);
    PprofDecoder { wire: &file, strings, body: &body }.convert(dictionary, limits)
}

struct PprofDecoder<'w> {
    wire: &'w wire::Profile,
    /// The encoded message, from which samples are decoded one at a time.
    body: &'w [u8],
    strings: Vec<StringId>,
}

impl PprofDecoder<'_> {
    /// An empty table counts as a table with "".
    fn string(&self, index: i64, at: impl FnOnce() -> String) -> Result<StringId, DecodeError> {
        match usize::try_from(index).ok().and_then(|index| self.strings.get(index)) {
            Some(string) => Ok(*string),
            None if index == 0 => Ok(StringId::EMPTY),
            None => Err(decode_error(at(), format!("an index below {}", self.strings.len()), index.to_string())),
        }
    }

    fn convert(&self, mut dictionary: Dictionary, limits: &DecodeLimits) -> Result<ProfilesData, DecodeError> {
        let functions = self.functions(&mut dictionary)?;
        let mappings = self.mappings(&mut dictionary)?;
        let own_code = self.own_code(&dictionary);
        let locations = self.locations(&functions, &mappings, &own_code, &mut dictionary)?;
        let (mut profiles, types) = self.profiles(&dictionary)?;
        self.samples(&locations, &types, &mut profiles, &mut dictionary)?;
        let (resource, mut attributes) = self.metadata(&mut dictionary, limits)?;
        attributes.extend(self.type_settings(&types.types, &profiles, &mut dictionary)?);
        let attributes = dictionary.attribute_set(&attributes);
        for profile in &mut profiles {
            profile.attributes = attributes;
        }
        let resources =
            vec![ResourceProfiles { resource, scope: Scope::default(), profiles, ..ResourceProfiles::default() }];
        Ok(ProfilesData { dictionary, resources })
    }

    fn functions(&self, dictionary: &mut Dictionary) -> Result<HashMap<u64, FunctionId>, DecodeError> {
        let mut ids = HashMap::with_capacity(self.wire.function.len());
        for (nth, function) in self.wire.function.iter().enumerate() {
            let at = |field: &str| format!("function[{nth}].{field}");
            let entry = Function {
                name: self.string(function.name, || at("name"))?,
                system_name: self.string(function.system_name, || at("system_name"))?,
                filename: self.string(function.filename, || at("filename"))?,
                start_line: function.start_line,
            };
            add(&mut ids, function.id, dictionary.function(entry), || at("id"))?;
        }
        Ok(ids)
    }

    fn mappings(&self, dictionary: &mut Dictionary) -> Result<HashMap<u64, MappingId>, DecodeError> {
        let mut ids = HashMap::with_capacity(self.wire.mapping.len());
        for (nth, mapping) in self.wire.mapping.iter().enumerate() {
            let at = |field: &str| format!("mapping[{nth}].{field}");
            let filename = self.string(mapping.filename, || at("filename"))?;
            let build_id = self.string(mapping.build_id, || at("build_id"))?;
            let mut attributes = Vec::new();
            if !build_id.is_empty() {
                let key = dictionary.string(names::BUILD_ID);
                let value = StoredValue::String(build_id);
                attributes.push(dictionary.stored_attribute(StoredAttribute { key, value, ..Default::default() }));
            }
            let flags = flags(mapping);
            let has_range = [mapping.memory_start, mapping.memory_limit, mapping.file_offset] != [0; 3];
            // The empty mapping that the encoder writes for locations without a mapping gets no attributes.
            if has_range || !filename.is_empty() || !build_id.is_empty() {
                attributes.extend(flags.map(|(key, set)| dictionary.attribute(key, Value::Bool(set), "")));
            }
            let entry = Mapping {
                memory_start: mapping.memory_start,
                memory_limit: mapping.memory_limit,
                file_offset: mapping.file_offset,
                filename,
                attributes: dictionary.attribute_set(&attributes),
            };
            add(&mut ids, mapping.id, dictionary.mapping(entry), || at("id"))?;
        }
        Ok(ids)
    }

    /// The prefixes of own code in the comments. Those that match no function are ignored: redaction may have changed the paths.
    fn own_code(&self, dictionary: &Dictionary) -> OwnCode {
        let comments = self.wire.comment.iter().filter_map(|index| self.string(*index, String::new).ok());
        let prefixes = comments.filter_map(|comment| {
            let comment = dictionary.get_string(comment);
            let (_, prefixes) = comment.rsplit_once(names::OWN_CODE)?;
            (comment.len() <= MAX_OWN_CODE_BYTES).then_some(prefixes)
        });
        let own_code = OwnCode::new(prefixes);
        let text = |id| dictionary.get_string(id);
        let is_match = |function: &Function| own_code.matches(text(function.name), text(function.filename));
        if dictionary.functions().iter().any(is_match) {
            own_code
        } else {
            OwnCode::default()
        }
    }

    fn locations(
        &self,
        functions: &HashMap<u64, FunctionId>,
        mappings: &HashMap<u64, MappingId>,
        own_code: &OwnCode,
        dictionary: &mut Dictionary,
    ) -> Result<HashMap<u64, LocationId>, DecodeError> {
        let mut lines = Vec::new();
        let mut ids = HashMap::with_capacity(self.wire.location.len());
        for (nth, location) in self.wire.location.iter().enumerate() {
            let at = |field: &str| format!("location[{nth}].{field}");
            lines.clear();
            for (nth, line) in location.line.iter().enumerate() {
                let function = find(functions, line.function_id, || at(&format!("line[{nth}].function_id")))?;
                lines.push(Line { function, line: line.line, column: line.column });
            }
            let folded = location.is_folded.then(|| dictionary.attribute(names::IS_FOLDED, Value::Bool(true), ""));
            let origin = own_code.attribute(dictionary, &lines, FrameType::Unspecified);
            let attributes: Vec<AttributeId> = folded.into_iter().chain(origin).collect();
            let entry = Location {
                mapping: find(mappings, location.mapping_id, || at("mapping_id"))?,
                address: location.address,
                lines: &lines,
                attributes: dictionary.attribute_set(&attributes),
            };
            add(&mut ids, location.id, dictionary.location(entry), || at("id"))?;
        }
        Ok(ids)
    }

    /// One profile per value type except for exact values, and the columns of each profile.
    fn profiles(&self, dictionary: &Dictionary) -> Result<(Vec<Profile>, SampleTypes), DecodeError> {
        if self.wire.sample_type.len() > MAX_VALUE_TYPES {
            let got = self.wire.sample_type.len().to_string();
            return Err(decode_error("sample_type", format!("at most {MAX_VALUE_TYPES} value types"), got));
        }
        let text = |index, at: String| {
            let text = dictionary.get_string(self.string(index, || at.clone())?);
            if text.len() > MAX_TYPE_NAME_BYTES {
                return Err(decode_error(
                    at,
                    format!("a name of at most {MAX_TYPE_NAME_BYTES} bytes"),
                    text.len().to_string(),
                ));
            }
            Ok(text)
        };
        let value_type = |wire: &wire::ValueType, at: &str| {
            Ok(ValueType::new(text(wire.kind, format!("{at}.type"))?, text(wire.unit, format!("{at}.unit"))?))
        };
        let period_type = value_type(&self.wire.period_type.unwrap_or_default(), "period_type")?;
        let mut types = Vec::new();
        for (nth, wire) in self.wire.sample_type.iter().enumerate() {
            types.push(value_type(wire, &format!("sample_type[{nth}]"))?);
        }
        let counts = types.iter().position(|known| (&*known.kind, &*known.unit) == ("samples", "count"));
        let exact = types.iter().position(|known| !known.is_empty() && *known == period_type);
        let unsigned = |value: i64, at: &str| {
            u64::try_from(value).map_err(|_| decode_error(at, "a time of at least 0", value.to_string()))
        };
        let window = Profile {
            period_type: period_type.clone(),
            period: self.wire.period,
            time_unix_nano: unsigned(self.wire.time_nanos, "time_nanos")?,
            duration_nano: unsigned(self.wire.duration_nanos, "duration_nanos")?,
            ..Profile::default()
        };
        let exact = exact.filter(|exact| counts.is_some_and(|counts| counts != *exact));
        let (mut profiles, mut columns) = (Vec::new(), Vec::new());
        for (nth, sample_type) in types.iter().enumerate().filter(|(nth, _)| Some(*nth) != exact) {
            let exact = if Some(nth) == counts { exact } else { None };
            let exact_type = exact.map(|nth| types[nth].clone());
            columns.push(Column { value: nth, exact });
            profiles.push(Profile { sample_type: sample_type.clone(), exact_type, ..window.clone() });
        }
        Ok((profiles, SampleTypes { types, columns }))
    }

    fn samples(
        &self,
        locations: &HashMap<u64, LocationId>,
        types: &SampleTypes,
        profiles: &mut [Profile],
        dictionary: &mut Dictionary,
    ) -> Result<(), DecodeError> {
        let (mut stack, mut nth) = (Vec::new(), 0usize);
        scan::for_each_message(self.body, wire::SAMPLE, |message| {
            let at = |field: &str| format!("sample[{nth}].{field}");
            let sample =
                wire::Sample::decode(message).map_err(|error| decode_error(at(""), "a sample", error.to_string()))?;
            if sample.value.len() != types.types.len() {
                return Err(decode_error(
                    at("value"),
                    format!("{} values", types.types.len()),
                    sample.value.len().to_string(),
                ));
            }
            stack.clear();
            for (depth, &id) in sample.location_id.iter().enumerate() {
                match locations.get(&id) {
                    Some(location) => stack.push(*location),
                    None => {
                        let path = at(&format!("location_id[{depth}]"));
                        return Err(decode_error(path, "the id of a location", id.to_string()));
                    }
                }
            }
            let (attributes, link, time) = self.labels(&sample, dictionary, at)?;
            let timestamps_unix_nano = time.into_iter().collect();
            let stack = dictionary.stack(&stack);
            let identity = Sample { stack, attributes, link, timestamps_unix_nano, ..Sample::default() };
            for (profile, column) in profiles.iter_mut().zip(&types.columns) {
                let (value, exact_value) =
                    (sample.value[column.value], column.exact.map_or(0, |nth| sample.value[nth]));
                if value != 0 || exact_value != 0 {
                    profile.samples.push(Sample { values: vec![value], exact_value, ..identity.clone() });
                }
            }
            nth += 1;
            Ok(())
        })
    }

    /// Keys are unique in the model: the first of repeated labels wins.
    fn labels(
        &self,
        sample: &wire::Sample,
        dictionary: &mut Dictionary,
        at: impl Fn(&str) -> String,
    ) -> Result<(AttributeSetId, LinkId, Option<u64>), DecodeError> {
        let (mut link, mut local_root, mut time) = (Link::default(), [0; 8], None);
        let mut keys: Vec<StringId> = Vec::with_capacity(sample.label.len().min(64));
        let mut attributes = Vec::with_capacity(sample.label.len().min(64));
        for (nth, label) in sample.label.iter().enumerate() {
            let at = |field: &str| at(&format!("label[{nth}].{field}"));
            let key = self.string(label.key, || at("key"))?;
            let value = self.string(label.str, || at("str"))?;
            let unit = self.string(label.num_unit, || at("num_unit"))?;
            let id = match dictionary.get_string(key) {
                names::TRACE_ID | names::SPAN_ID | names::LOCAL_ROOT => parse_id(dictionary.get_string(value)),
                _ => None,
            };
            match id {
                Some(Id::Trace(id)) if dictionary.get_string(key) == names::TRACE_ID => link.trace_id = id,
                Some(Id::Span(id)) if dictionary.get_string(key) == names::SPAN_ID => link.span_id = id,
                Some(Id::Span(id)) if dictionary.get_string(key) == names::LOCAL_ROOT => local_root = id,
                _ if time.is_none() && is_time(label, dictionary.get_string(key), dictionary.get_string(unit)) => {
                    time = u64::try_from(label.num).ok()
                }
                _ if key.is_empty() || keys.contains(&key) => {}
                _ if keys.len() >= MAX_LABELS => {
                    return Err(decode_error(at("key"), format!("at most {MAX_LABELS} labels"), "more"));
                }
                _ => {
                    keys.push(key);
                    attributes.push(dictionary.stored_attribute(if label.str != 0 {
                        StoredAttribute { key, value: StoredValue::String(value), unit: StringId::EMPTY }
                    } else {
                        StoredAttribute { key, value: StoredValue::Int(label.num), unit }
                    }));
                }
            }
        }
        Ok((dictionary.attribute_set(&attributes), dictionary.link(TreeSpan::below(link, local_root)), time))
    }

    /// Converts comments of the form that our encoder writes to resource attributes; other comments and settings become
    /// attributes of the profiles.
    fn metadata(
        &self,
        dictionary: &mut Dictionary,
        limits: &DecodeLimits,
    ) -> Result<(Vec<Attribute>, Vec<AttributeId>), DecodeError> {
        let mut resource: Vec<Attribute> = Vec::new();
        let (mut comments, mut copied) = (String::new(), 0usize);
        for (nth, &comment) in self.wire.comment.iter().enumerate() {
            let at = || format!("comment[{nth}]");
            let text = dictionary.get_string(self.string(comment, at)?);
            copied += text.len();
            if copied > limits.memory_bytes / 8 {
                return Err(decode_error(
                    at(),
                    format!("comments of at most {} bytes", limits.memory_bytes / 8),
                    "more",
                ));
            }
            match resource_attribute(text) {
                Some((key, value)) if resource.len() < MAX_LABELS && resource.iter().all(|known| known.key != key) => {
                    resource.push(Attribute::string(key, value));
                }
                _ if text.is_empty() => {}
                _ => {
                    if !comments.is_empty() {
                        comments.push('\n');
                    }
                    comments.push_str(text);
                }
            }
        }
        let mut attributes = Vec::new();
        if !comments.is_empty() {
            attributes.push(dictionary.attribute(names::COMMENT, Value::String(&comments), ""));
        }
        for (key, index) in [
            (names::DOC_URL, self.wire.doc_url),
            (names::DROP_FRAMES, self.wire.drop_frames),
            (names::KEEP_FRAMES, self.wire.keep_frames),
        ] {
            let text = self.string(index, || key.to_owned())?;
            if !text.is_empty() {
                let key = dictionary.string(key);
                let value = StoredValue::String(text);
                attributes.push(dictionary.stored_attribute(StoredAttribute { key, value, unit: StringId::EMPTY }));
            }
        }
        Ok((resource, attributes))
    }

    /// The default type and the order of the types, as far as the encoder would write others. Readers of a file without a
    /// default display its last type; the encoder's default is `cpu`.
    fn type_settings(
        &self,
        types: &[ValueType],
        profiles: &[Profile],
        dictionary: &mut Dictionary,
    ) -> Result<Vec<AttributeId>, DecodeError> {
        let default = self.string(self.wire.default_sample_type, || names::DEFAULT_SAMPLE_TYPE.to_owned())?;
        let last = types.last().map_or("", |last| &last.kind);
        let default = match dictionary.get_string(default) {
            "" if types.iter().any(|known| known.kind == "cpu") && last != "cpu" => last.to_owned(),
            default => default.to_owned(),
        };
        let order = pprof::listed_sample_types(types, profiles).unwrap_or_default();
        let settings = [(names::DEFAULT_SAMPLE_TYPE, default), (names::SAMPLE_TYPES, order)];
        let mut attribute = |(key, text): &(&str, String)| dictionary.attribute(key, Value::String(text), "");
        Ok(settings.iter().filter(|(_, text)| !text.is_empty()).map(&mut attribute).collect())
    }
}

/// Far above any profiler's number of types; limits the memory that one sample needs in all profiles.
const MAX_VALUE_TYPES: usize = 64;
/// Names of value types are copied into every profile.
const MAX_TYPE_NAME_BYTES: usize = 1024;
const MAX_LABELS: usize = 256;
/// Every function is compared with the prefixes of own code.
const MAX_OWN_CODE_BYTES: usize = 2048;

/// The value types of a file, and the columns of each profile.
struct SampleTypes {
    types: Vec<ValueType>,
    columns: Vec<Column>,
}

/// Positions of a profile's values in each sample.
struct Column {
    value: usize,
    exact: Option<usize>,
}

enum Id {
    Trace([u8; 16]),
    Span([u8; 8]),
}

/// Whether a label is the time of its sample.
fn is_time(label: &wire::Label, key: &str, unit: &str) -> bool {
    label.str == 0 && label.num > 0 && key == names::END_TIMESTAMP && unit == names::END_TIMESTAMP_UNIT
}

/// An id in the form that the encoder writes: lower-case digits, not all 0. Other texts stay labels.
fn parse_id(text: &str) -> Option<Id> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if !matches!(text.len(), 16 | 32) || !text.bytes().all(is_digit) || text.bytes().all(|byte| byte == b'0') {
        return None;
    }
    let bytes = hex::decode(text).ok()?;
    bytes.as_slice().try_into().map(Id::Trace).or_else(|_| bytes.as_slice().try_into().map(Id::Span)).ok()
}

fn add<T>(ids: &mut HashMap<u64, T>, id: u64, entry: T, at: impl FnOnce() -> String) -> Result<(), DecodeError> {
    if id == 0 {
        return Err(decode_error(at(), "an id that is not 0", "0"));
    }
    match ids.insert(id, entry) {
        None => Ok(()),
        Some(_) => Err(decode_error(at(), "a unique id", format!("{id} again"))),
    }
}

fn find<T: Copy + Default>(ids: &HashMap<u64, T>, id: u64, at: impl FnOnce() -> String) -> Result<T, DecodeError> {
    match ids.get(&id) {
        Some(entry) => Ok(*entry),
        None if id == 0 => Ok(T::default()),
        None => Err(decode_error(at(), "the id of an entry, or 0", id.to_string())),
    }
}

/// The flags of a mapping by their attribute names.
fn flags(mapping: &wire::Mapping) -> [(&'static str, bool); 4] {
    let set = [mapping.has_functions, mapping.has_filenames, mapping.has_line_numbers, mapping.has_inline_frames];
    std::array::from_fn(|nth| (names::HAS[nth], set[nth]))
}

/// `service.name=checkout` as (key, value): a comment whose left side is a dotted attribute name.
fn resource_attribute(comment: &str) -> Option<(&str, &str)> {
    let (key, value) = comment.split_once('=')?;
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
    };
    (key.contains('.') && key.split('.').all(part)).then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_comment_with_a_dotted_name_is_a_resource_attribute() {
        assert_eq!(resource_attribute("service.name=checkout=1"), Some(("service.name", "checkout=1")));
        for comment in ["service.name", "service=x", "see a.b =x", ".=x", "Built with go=1", "=x", "a..b=x"] {
            assert_eq!(resource_attribute(comment), None, "{comment}");
        }
    }
}
