//! The value types of a file, and the aggregation of all profiles' samples into their columns.

use hashbrown::HashMap;

use super::names;
use crate::*;

/// Identity of a sample in the file: stack, labels, link and time, with the service if the file has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SampleRow {
    pub stack: StackId,
    pub attributes: AttributeSetId,
    pub link: LinkId,
    /// Time of a sample that was not aggregated, Unix nanoseconds.
    pub time_unix_nano: Option<u64>,
    /// Position of the first resource with its service, when services differ.
    pub service: Option<usize>,
}

/// The samples and values of the file.
pub(super) struct Columns {
    pub types: Vec<ValueType>,
    pub rows: Vec<SampleRow>,
    /// `types.len()` values per row.
    pub values: Vec<i64>,
}

/// Columns of a profile's values.
struct ProfileColumns {
    /// Column of the values themselves.
    values: Option<usize>,
    /// Column of the weights, if it is another one.
    weights: Option<usize>,
}

impl Columns {
    pub fn of(data: &ProfilesData) -> Self {
        let listed = listed_types(data);
        let mut columns = Self { types: listed.clone(), rows: Vec::new(), values: Vec::new() };
        let targets = columns.targets(data.profiles().map(|(_, profile)| profile), &listed);
        let services: Vec<&str> = data.resources.iter().map(ResourceProfiles::service_name).collect();
        let one_service = services.windows(2).all(|pair| pair[0] == pair[1]);
        let width = columns.types.len();
        let mut known: HashMap<SampleRow, usize> = HashMap::new();
        let mut targets = targets.iter();
        for (nth, resource) in data.resources.iter().enumerate() {
            let service = if one_service { None } else { services.iter().position(|name| *name == services[nth]) };
            for (profile, target) in resource.profiles.iter().zip(targets.by_ref()) {
                for sample in &profile.samples {
                    let time_unix_nano = match sample.timestamps_unix_nano[..] {
                        [time] if sample.values.len() == 1 && time > 0 => Some(time),
                        _ => None,
                    };
                    let Sample { stack, attributes, link, .. } = *sample;
                    let row = SampleRow { stack, attributes, link, time_unix_nano, service };
                    let at = *known.entry(row).or_insert_with(|| {
                        columns.rows.push(row);
                        columns.values.resize(columns.values.len() + width, 0);
                        columns.rows.len() - 1
                    });
                    let values = &mut columns.values[at * width..][..width];
                    if let Some(column) = target.values {
                        values[column] = values[column].saturating_add(sample.total());
                    }
                    if let Some(column) = target.weights {
                        values[column] = values[column].saturating_add(profile.weight(sample));
                    }
                }
            }
        }
        columns
    }

    /// `samples`/`count` belongs to the first type that counts periods; other such types have only weights. Weights are not
    /// written if the types are listed without theirs.
    fn targets<'p>(
        &mut self,
        profiles: impl Iterator<Item = &'p Profile>,
        listed: &[ValueType],
    ) -> Vec<ProfileColumns> {
        let mut counts: Option<&str> = None;
        let target = |profile: &'p Profile| {
            if profile.exact_type.is_none() && !profile.counts_periods() {
                return ProfileColumns { values: Some(self.column(&profile.sample_type)), weights: None };
            }
            let owner = *counts.get_or_insert(profile.type_name());
            let values = (owner == profile.type_name()).then(|| self.column(&profile.sample_type));
            let weight_type = ValueType::new(profile.type_name(), profile.unit());
            let is_written = listed.is_empty() || listed.contains(&weight_type);
            ProfileColumns { values, weights: is_written.then(|| self.column(&weight_type)) }
        };
        profiles.map(target).collect()
    }

    fn column(&mut self, value_type: &ValueType) -> usize {
        self.types.iter().position(|known| known == value_type).unwrap_or_else(|| {
            self.types.push(value_type.clone());
            self.types.len() - 1
        })
    }

    pub fn values_of(&self, row: usize) -> &[i64] {
        let width = self.types.len();
        &self.values[row * width..][..width]
    }
}

/// The attribute of a file's sample types, by which the encoder writes the same; `None` when it does so without. It does not
/// depend on the samples, so that windows of one producer have equal attributes and can be merged.
pub fn listed_sample_types(types: &[ValueType], profiles: &[Profile]) -> Option<String> {
    let mut columns = Columns { types: Vec::new(), rows: Vec::new(), values: Vec::new() };
    columns.targets(profiles.iter(), &[]);
    let is_derived = |profile: &Profile| profile.exact_type.is_none() || profile.counts_periods();
    if profiles.len() == 1 && profiles.iter().all(is_derived) && columns.types == types {
        return None;
    }
    let text = types.iter().map(|of| format!("{}/{}", of.kind, of.unit)).collect::<Vec<_>>().join(",");
    (parse_types(&text) == types).then_some(text)
}

/// The types of [`names::SAMPLE_TYPES`]; empty unless all profiles have the same.
fn listed_types(data: &ProfilesData) -> Vec<ValueType> {
    let mut lists = data.profiles().map(|(_, profile)| {
        let mut attributes = data.dictionary.attributes_of(profile.attributes);
        attributes.find_map(|attribute| match attribute.value {
            Value::String(text) if attribute.key == names::SAMPLE_TYPES => Some(text),
            _ => None,
        })
    });
    let first = lists.next().flatten().unwrap_or_default();
    if lists.all(|list| list == Some(first)) {
        parse_types(first)
    } else {
        Vec::new()
    }
}

/// Each type needs memory in every row, and the text may be hostile.
const MAX_LISTED_TYPES: usize = 32;

fn parse_types(text: &str) -> Vec<ValueType> {
    text.split(',')
        .take(MAX_LISTED_TYPES)
        .filter_map(|of| of.split_once('/'))
        .map(|(kind, unit)| ValueType::new(kind, unit))
        .collect()
}
