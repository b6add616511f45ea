//! Redacts the samples of profiles: their functions, files and labels. Samples that become identical are merged; totals do not
//! change.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use super::redactor::{ProfileRedactor, Verdict};
use super::rule::RedactionTarget;
use crate::transform::Merged;
use crate::*;

/// Name of the frame of a stack whose frames were all removed.
pub(super) const NO_FRAMES: &str = "[redacted]";

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

/// State of one pass over the dictionary of a request.
struct RedactedIds<'r> {
    redactor: &'r mut ProfileRedactor,
    /// Names of services before and after their redaction; the label `service.name` repeats them.
    service_names: HashMap<String, String>,
    /// Entries before the pass.
    before: DictionaryLens,
    /// New ids of labels; an inner `None` for a removed one.
    attributes: ById<Option<AttributeId>>,
    attribute_sets: ById<AttributeSetId>,
    /// New sets of labels, and those that several sets became.
    new_sets: HashSet<AttributeSetId>,
    shared_sets: HashSet<AttributeSetId>,
    /// Texts that were replaced or dropped at one of their uses.
    removed: Vec<StringId>,
}

fn samples(mut data: ProfilesData, redactor: &mut ProfileRedactor, renamed: &HashMap<String, String>) -> ProfilesData {
    let mut service_names = renamed.clone();
    for resource in &data.resources {
        let name = resource.service_name().to_owned();
        service_names.entry(name.clone()).or_insert(name);
    }
    let before = data.dictionary.lens();
    let mut ids = RedactedIds {
        redactor,
        service_names,
        before,
        attributes: ById::new(before.attributes),
        attribute_sets: ById::new(before.attribute_sets),
        new_sets: HashSet::new(),
        shared_sets: HashSet::new(),
        removed: Vec::new(),
    };
    let ProfilesData { dictionary, resources } = &mut data;
    let stacks = ids.frames(dictionary);
    let are_labels_unchanged = ids.are_labels_unchanged(dictionary);
    // Samples are visited only if the id of a stack or a label changed.
    if !stacks.is_empty() || !are_labels_unchanged {
        let shared_stacks: HashSet<StackId> = stacks.values().copied().collect();
        for profile in resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
            profile.attributes = ids.attribute_set(dictionary, profile.attributes);
            for sample in &mut profile.samples {
                sample.stack = stacks.get(&sample.stack).copied().unwrap_or(sample.stack);
                sample.attributes = ids.attribute_set(dictionary, sample.attributes);
            }
            merge_equal(profile, &shared_stacks, &ids.shared_sets);
        }
    }
    if !ids.removed.is_empty() {
        let erased = ids.erased(dictionary);
        dictionary.erase_strings(erased);
    }
    data
}

/// Merges the samples whose stacks or labels may have become those of another sample.
fn merge_equal(profile: &mut Profile, stacks: &HashSet<StackId>, sets: &HashSet<AttributeSetId>) {
    if stacks.is_empty() && sets.is_empty() {
        return;
    }
    let is_shared = |sample: &mut Sample| stacks.contains(&sample.stack) || sets.contains(&sample.attributes);
    let mut merged = Merged::default();
    for sample in profile.samples.extract_if(.., is_shared) {
        merged.add(sample);
    }
    profile.samples.append(&mut merged.into_sorted_profile().samples);
}

/// New ids of the texts that change; `None` for those that are dropped.
type NewTexts = HashMap<StringId, Option<StringId>>;

fn new_text(changed: &NewTexts, id: StringId) -> Option<StringId> {
    changed.get(&id).copied().unwrap_or(Some(id))
}

/// Replaces paths of mappings in place; the result has the new id of each that became equal to another one.
fn replaced_mappings(dictionary: &mut Dictionary, paths: &NewTexts) -> HashMap<MappingId, MappingId> {
    let mut changes = Vec::new();
    for (index, before) in dictionary.mappings().iter().enumerate() {
        let filename = new_text(paths, before.filename).unwrap_or_default();
        if filename != before.filename {
            changes.push((MappingId(index as u32), Mapping { filename, ..*before }));
        }
    }
    dictionary.replace_mappings(&changes)
}

/// Replaces functions and mappings of locations; the result is as that of [`RedactedIds::functions`]. A location of a function with
/// another name loses its address, which leads to the name in the symbols of the file.
fn replaced_locations(
    dictionary: &mut Dictionary,
    functions: &HashMap<FunctionId, Option<FunctionId>>,
    renamed: &HashSet<FunctionId>,
    mappings: &HashMap<MappingId, MappingId>,
) -> HashMap<LocationId, Option<LocationId>> {
    if functions.is_empty() && renamed.is_empty() && mappings.is_empty() {
        return HashMap::new();
    }
    let (mut changes, mut dropped) = (Vec::new(), Vec::new());
    for index in 0..dictionary.lens().locations {
        let id = LocationId(index as u32);
        let location = dictionary.get_location(id);
        let mapping = mappings.get(&location.mapping).copied().unwrap_or(location.mapping);
        let is_changed = |line: &Line| functions.contains_key(&line.function);
        let is_renamed = location.lines.iter().any(|line| renamed.contains(&line.function));
        let address = if is_renamed { 0 } else { location.address };
        let is_kept = (mapping, address) == (location.mapping, location.address);
        if is_kept && !location.lines.iter().any(is_changed) {
            continue;
        }
        let new_line = |line: &Line| {
            let function = functions.get(&line.function).copied().unwrap_or(Some(line.function))?;
            Some(Line { function, ..*line })
        };
        let lines: Vec<Line> = location.lines.iter().filter_map(new_line).collect();
        if lines.is_empty() && !location.lines.is_empty() {
            dropped.push((id, None));
        } else {
            changes.push((id, mapping, address, lines));
        }
    }
    let moved = dictionary.replace_locations(&changes).into_iter().map(|(old, new)| (old, Some(new)));
    moved.chain(dropped).collect()
}

impl RedactedIds<'_> {
    /// Replaces the texts of functions and mappings in place. Locations and stacks are visited only if functions became equal to
    /// others or were removed. The result has the new id of each stack whose old id must not be used any more.
    fn frames(&mut self, dictionary: &mut Dictionary) -> HashMap<StackId, StackId> {
        let functions = dictionary.functions();
        let names: Vec<StringId> = functions.iter().flat_map(|it| [it.name, it.system_name]).collect();
        let mappings = dictionary.mappings().iter().map(|it| it.filename);
        let paths: Vec<StringId> = functions.iter().map(|it| it.filename).chain(mappings).collect();
        let names = self.changed_texts(dictionary, RedactionTarget::Function, names);
        let paths = self.changed_texts(dictionary, RedactionTarget::File, paths);
        if names.is_empty() && paths.is_empty() {
            return HashMap::new();
        }
        let is_renamed =
            |function: &Function| [function.name, function.system_name].iter().any(|name| names.contains_key(name));
        let all = dictionary.functions().iter().enumerate();
        let renamed = all.filter(|(_, function)| is_renamed(function)).map(|(id, _)| FunctionId(id as u32)).collect();
        let functions = self.functions(dictionary, &names, &paths);
        let mappings = replaced_mappings(dictionary, &paths);
        let locations = replaced_locations(dictionary, &functions, &renamed, &mappings);
        let mut if_empty = LocationId::EMPTY;
        if locations.values().any(Option::is_none) {
            let name = dictionary.string(NO_FRAMES);
            let function = dictionary.function(Function { name, ..Function::default() });
            let lines = [Line { function, ..Line::default() }];
            if_empty = dictionary.location(Location { lines: &lines, ..Location::default() });
        }
        if locations.is_empty() {
            HashMap::new()
        } else {
            dictionary.replace_in_stacks(&locations, if_empty)
        }
    }

    /// Replaces functions in place. Maps a function that became equal to another one to its id, and a dropped one to `None`.
    fn functions(
        &mut self,
        dictionary: &mut Dictionary,
        names: &NewTexts,
        paths: &NewTexts,
    ) -> HashMap<FunctionId, Option<FunctionId>> {
        let (mut changes, mut dropped) = (Vec::new(), Vec::new());
        for (index, before) in dictionary.functions().iter().enumerate() {
            let id = FunctionId(index as u32);
            let Function { name, system_name, filename, start_line } = *before;
            let filename_after = new_text(paths, filename).unwrap_or_default();
            match [name, system_name].map(|name| new_text(names, name)) {
                [Some(name), Some(system_name)] => {
                    let after = Function { name, system_name, filename: filename_after, start_line };
                    changes.extend((after != *before).then_some((id, after)));
                }
                _ => {
                    self.removed.extend([name, system_name, filename]);
                    changes.push((id, Function::default()));
                    dropped.push((id, None));
                }
            }
        }
        let moved = dictionary.replace_functions(&changes).into_iter().map(|(old, new)| (old, Some(new)));
        moved.chain(dropped).collect()
    }

    /// Computes the new id of every label.
    fn are_labels_unchanged(&mut self, dictionary: &mut Dictionary) -> bool {
        let mut is_unchanged = true;
        for index in 0..self.before.attributes {
            let id = AttributeId(index as u32);
            if !dictionary.is_of_frame(id) {
                is_unchanged &= self.attribute(dictionary, id) == Some(id);
            }
        }
        is_unchanged
    }

    /// Removed texts without a further use. The dictionary keeps entries that no sample refers to any more; encoders omit them.
    fn erased(&self, dictionary: &Dictionary) -> Vec<StringId> {
        let mut is_used = vec![false; dictionary.lens().strings];
        let mut using = |id: StringId| is_used[id.index()] = true;
        for function in dictionary.functions() {
            [function.name, function.system_name, function.filename].into_iter().for_each(&mut using);
        }
        for mapping in dictionary.mappings() {
            using(mapping.filename);
        }
        for index in 0..dictionary.lens().attributes {
            let id = AttributeId(index as u32);
            let is_replaced =
                index < self.before.attributes && self.attributes.get(index).is_some_and(|new| new != Some(id));
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

    /// The texts of `ids` that change.
    fn changed_texts(
        &mut self,
        dictionary: &mut Dictionary,
        target: RedactionTarget,
        mut ids: Vec<StringId>,
    ) -> NewTexts {
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
            if new.index() < self.before.attribute_sets || !self.new_sets.insert(new) {
                self.shared_sets.insert(new);
            }
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
