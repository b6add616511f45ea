//! The live objects as one pprof file of bounded size, for the file of the heap at its peak. Frames are those that the
//! drain thread resolved when it read the sample: an ended process resolves nothing.

use super::{InUseTotals, LiveStack};
use crate::context::{labels_of, LabelSetId};
use crate::hash::WordMap;
use crate::resource::Resource;
use crate::runtime::Frame;
use crate::window::{frames_location, own_code_comment};
use spanprof_profile::code_origin::OwnCode;
use spanprof_profile::encode::pprof::{self, names};
use spanprof_profile::kinds::{self, KindType};
use spanprof_profile::redact::{ProfileRedactor, UnredactedProfiles};
use spanprof_profile::{
    AttributeSetId, Dictionary, HeapAge, LocationId, Profile, ProfilesData, ResourceProfiles, Sample, Scope, StackId,
    Value, ValueType,
};

/// Stacks encoded at most, so that the time of a write is bounded: 3 µs per stack of 30 frames.
const MAX_STACKS: usize = 4096;

/// Values of the profile beside the objects.
pub(crate) struct PeakProfileInput<'a> {
    pub resource: &'a Resource,
    pub time_unix_ns: u64,
    pub interval_bytes: u64,
    pub own_code: &'a OwnCode,
    pub max_bytes: usize,
}

/// As [`PeakProfileInput`], for a pull.
pub(crate) struct InUseProfileInput<'a> {
    pub resource: &'a Resource,
    /// Labels of every sample.
    pub labels: &'a [(String, String)],
    pub time_unix_ns: u64,
    pub interval_bytes: u64,
    pub own_code: &'a OwnCode,
}

/// The encoded profile and the number of stacks that did not fit. Their bytes and objects have the stack `[too_many_stacks]`.
/// `None` if not even one stack fits.
pub(crate) fn encode_peak(
    mut totals: Vec<InUseTotals>,
    input: &PeakProfileInput<'_>,
    redactor: &mut ProfileRedactor,
) -> Option<(Vec<u8>, u64)> {
    totals.sort_unstable_by_key(|total| std::cmp::Reverse(total.values));
    let mut keep = totals.len().min(MAX_STACKS);
    loop {
        let input_of_profile = InUseProfileInput {
            resource: input.resource,
            labels: &[],
            time_unix_ns: input.time_unix_ns,
            interval_bytes: input.interval_bytes,
            own_code: input.own_code,
        };
        let bytes = pprof::encode_uncompressed(&profile(&totals, keep, &input_of_profile).redacted(redactor));
        if bytes.len() <= input.max_bytes {
            return Some((bytes, (totals.len() - keep) as u64));
        }
        // A tenth less than the mean size of a stack suggests: the largest stacks may be the deepest.
        let fitting = keep as u128 * input.max_bytes as u128 * 9 / (bytes.len() as u128 * 10);
        keep = (fitting as usize).min(keep.checked_sub(1)?);
    }
}

/// The profiles of all live objects.
pub(crate) fn in_use_profiles(
    totals: &[InUseTotals],
    input: &InUseProfileInput<'_>,
    redactor: &mut ProfileRedactor,
) -> ProfilesData {
    profile(totals, totals.len(), input).redacted(redactor)
}

fn profile(totals: &[InUseTotals], keep: usize, input: &InUseProfileInput<'_>) -> UnredactedProfiles {
    let (kept, omitted) = totals.split_at(keep.min(totals.len()));
    let mut builder =
        PeakBuilder { labels: input.labels.to_vec(), own_code: input.own_code.clone(), ..PeakBuilder::default() };
    let mut rows: Vec<_> = kept
        .iter()
        .map(|total| (builder.stack(&total.stack), builder.attributes(total.label_set, total.age), total.values))
        .collect();
    if !omitted.is_empty() {
        let rest = omitted.iter().fold([0; 2], |sum: [u64; 2], total| {
            std::array::from_fn(|index| sum[index].saturating_add(total.values[index]))
        });
        let frame = Frame { function: "[too_many_stacks]".into(), ..Frame::default() };
        let stack: LiveStack = [std::sync::Arc::from([frame])].into();
        rows.push((builder.stack(&stack), AttributeSetId::default(), rest));
    }
    let comment = own_code_comment(input.own_code).map(|comment| {
        let comment = builder.dictionary.attribute(names::COMMENT, Value::String(&comment), "");
        builder.dictionary.attribute_set(&[comment])
    });
    let attributes = comment.unwrap_or_default();
    let (period_name, period_unit) = kinds::IN_USE.period_type;
    let of_type = |of_kind: &KindType| Profile {
        sample_type: ValueType::new(of_kind.name, of_kind.unit),
        period_type: ValueType::new(period_name, period_unit),
        period: input.interval_bytes as i64,
        time_unix_nano: input.time_unix_ns,
        duration_nano: 1,
        attributes,
        samples: rows
            .iter()
            .map(|(stack, attributes, values)| Sample {
                stack: *stack,
                attributes: *attributes,
                values: vec![i64::try_from(values[of_kind.value]).unwrap_or(i64::MAX)],
                ..Sample::default()
            })
            .collect(),
        ..Profile::default()
    };
    let profiles = kinds::IN_USE.types.iter().map(of_type).collect();
    let resource = input.resource.attributes.iter().map(Into::into).collect();
    let resource = ResourceProfiles { resource, scope: Scope::spanprof(), profiles, ..ResourceProfiles::default() };
    UnredactedProfiles::new(ProfilesData { dictionary: builder.dictionary, resources: vec![resource] })
}

#[derive(Default)]
struct PeakBuilder {
    dictionary: Dictionary,
    /// By address of the frames, which live stacks share.
    locations: WordMap<usize, LocationId>,
    attributes: WordMap<(LabelSetId, Option<HeapAge>), AttributeSetId>,
    /// Labels of every sample.
    labels: Vec<(String, String)>,
    own_code: OwnCode,
}

impl PeakBuilder {
    fn stack(&mut self, stack: &LiveStack) -> StackId {
        let locations: Vec<_> = stack.iter().map(|frames| self.location(frames)).collect();
        self.dictionary.stack(&locations)
    }

    fn location(&mut self, frames: &std::sync::Arc<[Frame]>) -> LocationId {
        let address = frames.as_ptr() as usize;
        if let Some(location) = self.locations.get(&address) {
            return *location;
        }
        let id = frames_location(&mut self.dictionary, frames, &self.own_code);
        self.locations.insert(address, id);
        id
    }

    fn attributes(&mut self, label_set: LabelSetId, age: Option<HeapAge>) -> AttributeSetId {
        if let Some(id) = self.attributes.get(&(label_set, age)) {
            return *id;
        }
        let mut labels = labels_of(label_set);
        // Labels of the program have precedence.
        let others =
            self.labels.iter().cloned().chain(age.map(|age| (HeapAge::LABEL.to_owned(), age.text().to_owned())));
        for (key, value) in others.collect::<Vec<_>>() {
            if !labels.iter().any(|(name, _)| *name == key) {
                labels.push((key, value));
            }
        }
        let ids: Vec<_> =
            labels.iter().map(|(key, value)| self.dictionary.attribute(key, Value::String(value), "")).collect();
        let id = self.dictionary.attribute_set(&ids);
        self.attributes.insert((label_set, age), id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_engine_testing::redactor;
    use spanprof_read::decode::{self, DecodeLimits};
    use spanprof_read::query::{self, Granularity};
    use std::sync::Arc;

    fn totals(stacks: u64) -> Vec<InUseTotals> {
        let root: Arc<[Frame]> = [Frame { function: "main".into(), ..Frame::default() }].into();
        (0..stacks)
            .map(|number| {
                let leaf = Frame { function: format!("function_{number}").into(), line: 7, ..Frame::default() };
                let stack = [Arc::from([leaf]), root.clone()].into();
                InUseTotals { stack, label_set: LabelSetId::EMPTY, age: None, values: [1000 + number, 2] }
            })
            .collect()
    }

    fn encoded(stacks: u64, max_bytes: usize) -> (ProfilesData, usize, u64) {
        let input = PeakProfileInput {
            resource: &Resource::default(),
            time_unix_ns: 5,
            interval_bytes: 512,
            own_code: &OwnCode::default(),
            max_bytes,
        };
        let (bytes, omitted) = encode_peak(totals(stacks), &input, &mut redactor()).unwrap();
        (decode::pprof::decode(&bytes, &DecodeLimits::default()).unwrap(), bytes.len(), omitted)
    }

    fn sum(stacks: u64) -> i64 {
        totals(stacks).iter().map(|total| total.values[0] as i64).sum()
    }

    #[test]
    fn the_profile_has_every_object_with_its_stack() {
        let (data, _, omitted) = encoded(100, 1 << 20);
        let top = query::top(&data, "inuse_space", Granularity::Function);
        assert_eq!((top.total, top.rows.len(), omitted), (sum(100), 101, 0));
        assert_eq!(top.rows[0].location.function, "function_99");
        assert_eq!(query::top(&data, "inuse_objects", Granularity::Function).total, 200);
    }

    #[test]
    fn a_profile_that_does_not_fit_keeps_the_largest_stacks_and_the_total() {
        for max_bytes in [1500, 4000, 16_000] {
            let (data, length, omitted) = encoded(1000, max_bytes);
            assert!(length <= max_bytes && 2 * length > max_bytes, "{length} of {max_bytes} bytes");
            let top = query::top(&data, "inuse_space", Granularity::Function);
            assert_eq!(top.total, sum(1000));
            assert_eq!(top.rows[0].location.function, "[too_many_stacks]");
            assert_eq!(top.rows[1].location.function, "function_999");
            assert_eq!(top.samples as u64, 1000 - omitted + 1);
        }
    }

    #[test]
    fn own_code_by_configuration_is_own_code_for_the_reader() {
        let frame = |function: &str, file: &str| {
            Arc::from([Frame { function: function.into(), file: file.into(), ..Frame::default() }])
        };
        let stack = [frame("cache", "/srv/shop/cache.so"), frame("main", "/srv/app.py")].into();
        let totals = vec![InUseTotals { stack, label_set: LabelSetId::EMPTY, age: None, values: [1000, 2] }];
        let own_code = OwnCode::new(["shop/"]);
        let input = PeakProfileInput {
            resource: &Resource::default(),
            time_unix_ns: 5,
            interval_bytes: 512,
            own_code: &own_code,
            max_bytes: 1 << 20,
        };
        let (bytes, _) = encode_peak(totals, &input, &mut redactor()).unwrap();
        let data = decode::pprof::decode(&bytes, &DecodeLimits::default()).unwrap();
        let rows = query::top(&data, "inuse_space", Granularity::Function).rows;
        let own: Vec<_> = rows.iter().map(|row| (&*row.location.function, row.own)).collect();
        assert_eq!(own, [("cache", 1000), ("main", 0)]);
    }

    #[test]
    fn no_stack_is_encoded_into_no_space() {
        let input = PeakProfileInput {
            resource: &Resource::default(),
            time_unix_ns: 5,
            interval_bytes: 512,
            own_code: &OwnCode::default(),
            max_bytes: 10,
        };
        assert!(encode_peak(totals(3), &input, &mut redactor()).is_none());
    }
}
