//! Redacts the samples of profiles: their functions, files and labels. Samples that become identical are merged; totals do not
//! change.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use super::redactor::{ProfileRedactor, Verdict};
use super::rule::RedactionTarget;
use crate::transform::Merged;
use crate::*;

/// Name of the frame of a stack whose frames were all removed.
const NO_FRAMES: &str = "[redacted]";

/// Profiles as they were sampled. Encoders and destinations take [`ProfilesData`], which only a [`ProfileRedactor`] makes from them.
#[derive(Debug)]
pub struct UnredactedProfiles(ProfilesData);

impl UnredactedProfiles {
    /// Profiles whose texts no redactor has seen.
    pub fn new(data: ProfilesData) -> Self {
        Self(data)
    }

    /// The profiles of this process, whose resource attributes are redacted already.
    pub fn redacted(self, redactor: &mut ProfileRedactor) -> ProfilesData {
        if redactor.is_off() {
            return self.0;
        }
        let names = HashMap::new();
        samples(self.0, redactor, &names)
    }

    /// As [`UnredactedProfiles::redacted`], with the resource attributes.
    pub fn redacted_with_resources(self, redactor: &mut ProfileRedactor) -> ProfilesData {
        let mut data = self.0;
        let mut names = HashMap::new();
        for resource in &mut data.resources {
            let before = resource.service_name().to_owned();
            resource.resource = redactor.resource(std::mem::take(&mut resource.resource));
            names.insert(before, resource.service_name().to_owned());
        }
        samples(data, redactor, &names)
    }
}

/// Values by id; empty until they are computed.
struct ById<T>(Vec<Option<T>>);

impl<T: Copy> ById<T> {
    fn new(entries: usize) -> Self {
        Self(vec![None; entries])
    }

    fn get(&self, index: usize) -> Option<T> {
        self.0.get(index).copied().flatten()
    }

    fn set(&mut self, index: usize, value: T) -> T {
        if let Some(slot) = self.0.get_mut(index) {
            *slot = Some(value);
        }
        value
    }
}

/// New ids by id; an inner `None` for a removed entry.
struct RedactedIds<'r> {
    redactor: &'r mut ProfileRedactor,
    /// Names of services before and after their redaction; the label `service.name` repeats them.
    service_names: HashMap<String, String>,
    /// Changed texts as names of functions, and as paths. All others stay.
    names: HashMap<StringId, Option<StringId>>,
    paths: HashMap<StringId, Option<StringId>>,
    functions: ById<Option<FunctionId>>,
    /// Changed locations, and whether a location is one of them.
    locations: HashMap<LocationId, Option<LocationId>>,
    is_location_changed: Vec<bool>,
    stacks: ById<StackId>,
    attributes: ById<Option<AttributeId>>,
    attribute_sets: ById<AttributeSetId>,
    mappings: ById<MappingId>,
    /// Texts that were replaced or dropped at one of their uses.
    removed: Vec<StringId>,
}

fn samples(mut data: ProfilesData, redactor: &mut ProfileRedactor, renamed: &HashMap<String, String>) -> ProfilesData {
    let mut service_names = renamed.clone();
    for resource in &data.resources {
        let name = resource.service_name().to_owned();
        service_names.entry(name.clone()).or_insert(name);
    }
    let lens = data.dictionary.lens();
    let mut ids = RedactedIds {
        redactor,
        service_names,
        names: HashMap::new(),
        paths: HashMap::new(),
        functions: ById::new(0),
        locations: HashMap::new(),
        is_location_changed: Vec::new(),
        stacks: ById::new(0),
        attributes: ById::new(lens.attributes),
        attribute_sets: ById::new(lens.attribute_sets),
        mappings: ById::new(lens.mappings),
        removed: Vec::new(),
    };
    let ProfilesData { dictionary, resources } = &mut data;
    // Nearly always no text of the dictionary changes; samples and stacks are then not visited.
    let are_frames_unchanged = ids.are_frames_unchanged(dictionary);
    let is_label = |index: &usize| !dictionary.is_frame_type(AttributeId(*index as u32));
    let labels: Vec<usize> = (0..lens.attributes).filter(is_label).collect();
    let mut are_labels_unchanged = true;
    for index in labels {
        let id = AttributeId(index as u32);
        are_labels_unchanged &= ids.attribute(dictionary, id) == Some(id);
    }
    if are_frames_unchanged && are_labels_unchanged {
        return data;
    }
    if !are_frames_unchanged {
        ids.functions = ById::new(lens.functions);
        ids.stacks = ById::new(lens.stacks);
        for index in 0..lens.functions {
            ids.function(dictionary, FunctionId(index as u32));
        }
        ids.is_location_changed = vec![false; lens.locations];
        for index in 0..lens.locations {
            ids.location(dictionary, LocationId(index as u32));
        }
    }
    for profile in resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        profile.attributes = ids.attribute_set(dictionary, profile.attributes);
        let mut changed: HashSet<(StackId, AttributeSetId, LinkId)> = HashSet::new();
        for sample in &mut profile.samples {
            let before = (sample.stack, sample.attributes);
            if !are_frames_unchanged {
                sample.stack = ids.stack(dictionary, sample.stack);
            }
            sample.attributes = ids.attribute_set(dictionary, sample.attributes);
            if (sample.stack, sample.attributes) != before {
                changed.insert((sample.stack, sample.attributes, sample.link));
            }
        }
        merge_equal(profile, &changed);
    }
    let erased = ids.erased(dictionary, lens);
    dictionary.erase_strings(erased);
    data
}

/// Merges the samples of the identities in `changed`; all others have distinct identities already.
fn merge_equal(profile: &mut Profile, changed: &HashSet<(StackId, AttributeSetId, LinkId)>) {
    if changed.is_empty() {
        return;
    }
    let is_changed = |sample: &mut Sample| changed.contains(&(sample.stack, sample.attributes, sample.link));
    let mut merged = Merged::default();
    for sample in profile.samples.extract_if(.., is_changed) {
        merged.add(sample);
    }
    profile.samples.append(&mut merged.into_sorted_profile().samples);
}

fn new_text(changed: &HashMap<StringId, Option<StringId>>, id: StringId) -> Option<StringId> {
    changed.get(&id).copied().unwrap_or(Some(id))
}

impl RedactedIds<'_> {
    /// Whether every function and mapping keeps its texts.
    fn are_frames_unchanged(&mut self, dictionary: &mut Dictionary) -> bool {
        let functions = dictionary.functions();
        let names: Vec<StringId> = functions.iter().flat_map(|it| [it.name, it.system_name]).collect();
        let mappings = dictionary.mappings().iter().map(|it| it.filename);
        let paths: Vec<StringId> = functions.iter().map(|it| it.filename).chain(mappings).collect();
        self.names = self.changed_texts(dictionary, RedactionTarget::Function, names);
        self.paths = self.changed_texts(dictionary, RedactionTarget::File, paths);
        let mut is_unchanged = self.names.is_empty() && self.paths.is_empty();
        for index in 0..dictionary.mappings().len() {
            let id = MappingId(index as u32);
            is_unchanged &= self.mapping(dictionary, id) == id;
        }
        is_unchanged
    }

    /// Removed texts without a further use. The dictionary keeps entries that no sample refers to any more; encoders omit them.
    fn erased(&self, dictionary: &Dictionary, before: DictionaryLens) -> Vec<StringId> {
        let mut is_used = vec![false; dictionary.lens().strings];
        let mut using = |id: StringId| is_used[id.index()] = true;
        for (index, function) in dictionary.functions().iter().enumerate() {
            let is_replaced = self.functions.get(index).is_some_and(|new| new != Some(FunctionId(index as u32)));
            if !is_replaced {
                [function.name, function.system_name, function.filename].into_iter().for_each(&mut using);
            }
        }
        for (index, mapping) in dictionary.mappings().iter().enumerate() {
            if self.mappings.get(index).is_none_or(|new| new == MappingId(index as u32)) {
                using(mapping.filename);
            }
        }
        for index in 0..dictionary.lens().attributes {
            let id = AttributeId(index as u32);
            let is_replaced =
                index < before.attributes && self.attributes.get(index).is_some_and(|new| new != Some(id));
            let StoredAttribute { key, value, unit } = dictionary.get_stored_attribute(id);
            if !is_replaced {
                using(key);
                using(unit);
                if let StoredValue::String(text) = value {
                    using(text);
                }
            }
        }
        self.removed.iter().copied().filter(|id| !is_used[id.index()]).collect()
    }

    /// New ids of the texts that change; `None` for those that are dropped.
    fn changed_texts(
        &mut self,
        dictionary: &mut Dictionary,
        target: RedactionTarget,
        mut ids: Vec<StringId>,
    ) -> HashMap<StringId, Option<StringId>> {
        let mut is_seen = vec![false; dictionary.lens().strings];
        ids.retain(|id| !std::mem::replace(&mut is_seen[id.index()], true));
        let unknown = self.redactor.unknown(target, &ids, |id| dictionary.get_string(*id));
        let mut changed = HashMap::new();
        for id in unknown {
            let new = match self.redactor.verdict(target, "", dictionary.get_string(id)) {
                Verdict::Unchanged => continue,
                Verdict::Replaced(text) => Some(dictionary.string(&text)),
                Verdict::Dropped => None,
            };
            self.removed.push(id);
            changed.insert(id, new);
        }
        changed
    }

    fn stack(&mut self, dictionary: &mut Dictionary, id: StackId) -> StackId {
        if let Some(known) = self.stacks.get(id.index()) {
            return known;
        }
        let before = dictionary.get_stack(id);
        let is_changed = before.iter().any(|location| self.is_location_changed.get(location.index()) == Some(&true));
        let mut new = id;
        if is_changed {
            let locations = before.iter().filter_map(|id| self.locations.get(id).copied().unwrap_or(Some(*id)));
            let mut after: Vec<_> = locations.collect();
            if after.is_empty() {
                let name = dictionary.string(NO_FRAMES);
                let function = dictionary.function(Function { name, ..Function::default() });
                let lines = [Line { function, ..Line::default() }];
                after.push(dictionary.location(Location { lines: &lines, ..Location::default() }));
            }
            new = dictionary.stack(&after);
        }
        self.stacks.set(id.index(), new)
    }

    /// Stores the new id of a location that changes; `None` when all its functions are dropped.
    fn location(&mut self, dictionary: &mut Dictionary, id: LocationId) {
        let location = dictionary.get_location(id);
        let (address, attributes, before) = (location.address, location.attributes, location.mapping);
        let mapping = self.mappings.get(before.index()).unwrap_or(before);
        let new_function = |id: FunctionId| self.functions.get(id.index()).unwrap_or(Some(id));
        if mapping == before && location.lines.iter().all(|line| new_function(line.function) == Some(line.function)) {
            return;
        }
        let had_lines = !location.lines.is_empty();
        let new_line = |line: &Line| Some(Line { function: new_function(line.function)?, ..*line });
        let lines: Vec<Line> = location.lines.iter().filter_map(new_line).collect();
        let is_dropped = had_lines && lines.is_empty();
        let new = (!is_dropped).then(|| dictionary.location(Location { mapping, address, lines: &lines, attributes }));
        self.locations.insert(id, new);
        self.is_location_changed[id.index()] = true;
    }

    /// `None` when its name is dropped.
    fn function(&mut self, dictionary: &mut Dictionary, id: FunctionId) -> Option<FunctionId> {
        if let Some(known) = self.functions.get(id.index()) {
            return known;
        }
        let before = dictionary.get_function(id);
        let Function { name, system_name, filename, start_line } = before;
        let names = [name, system_name].map(|name| new_text(&self.names, name));
        let mut new = None;
        if names.contains(&None) {
            self.removed.extend([name, system_name, filename]);
        }
        if let [Some(name), Some(system_name)] = names {
            let filename = new_text(&self.paths, filename).unwrap_or_default();
            let function = Function { name, system_name, filename, start_line };
            new = Some(if function == before { id } else { dictionary.function(function) });
        }
        self.functions.set(id.index(), new)
    }

    fn mapping(&mut self, dictionary: &mut Dictionary, id: MappingId) -> MappingId {
        if let Some(known) = self.mappings.get(id.index()) {
            return known;
        }
        let mapping = dictionary.get_mapping(id);
        let filename = new_text(&self.paths, mapping.filename).unwrap_or_default();
        let new = dictionary.mapping(Mapping { filename, ..mapping });
        self.mappings.set(id.index(), new)
    }

    fn attribute_set(&mut self, dictionary: &mut Dictionary, id: AttributeSetId) -> AttributeSetId {
        if let Some(known) = self.attribute_sets.get(id.index()) {
            return known;
        }
        let before = dictionary.get_attribute_set(id).to_vec();
        let mut after: Vec<_> = before.iter().filter_map(|label| self.attribute(dictionary, *label)).collect();
        let mut new = id;
        if after != before {
            // Two keys may become equal; a set has each key once.
            let mut keys = Vec::with_capacity(after.len());
            after.retain(|label| {
                let key = dictionary.get_stored_attribute(*label).key;
                let is_new = !keys.contains(&key);
                keys.push(key);
                is_new
            });
            new = dictionary.attribute_set(&after);
        }
        self.attribute_sets.set(id.index(), new)
    }

    /// `None` when it is dropped.
    fn attribute(&mut self, dictionary: &mut Dictionary, id: AttributeId) -> Option<AttributeId> {
        if let Some(known) = self.attributes.get(id.index()) {
            return known;
        }
        let label = dictionary.get_attribute(id);
        let text = match label.value {
            Value::String(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.to_string()),
        };
        let service_name = self.service_names.get(&*text).filter(|_| label.key == "service.name");
        let value = match service_name {
            Some(name) if **name == *text => Verdict::Unchanged,
            Some(name) => Verdict::Replaced(name.clone()),
            None => self.redactor.verdict(RedactionTarget::LabelValue, label.key, &text),
        };
        let key = self.redactor.verdict(RedactionTarget::LabelKey, "", label.key);
        if (&key, &value) != (&Verdict::Unchanged, &Verdict::Unchanged) {
            let StoredAttribute { key, value, .. } = dictionary.get_stored_attribute(id);
            self.removed.push(key);
            if let StoredValue::String(text) = value {
                self.removed.push(text);
            }
        }
        let new = match (key, value) {
            (Verdict::Unchanged, Verdict::Unchanged) => Some(id),
            (Verdict::Dropped, _) | (_, Verdict::Dropped) => None,
            (key, value) => {
                let mut label = label.to_owned();
                if let Verdict::Replaced(key) = key {
                    label.key = key;
                }
                if let Verdict::Replaced(value) = value {
                    label.value = AttributeValue::String(value);
                }
                Some(dictionary.attribute(&label.key, label.value.as_ref(), &label.unit))
            }
        };
        self.attributes.set(id.index(), new)
    }
}
