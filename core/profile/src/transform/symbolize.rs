//! Names native code that had no name when it was sampled, by symbols that the caller looked up. Samples that become identical are
//! merged; totals do not change.

use hashbrown::HashMap;

use super::reduce::replace_samples;
use crate::*;

/// The locations of native code without a function: addresses in a file, without a line, or with the name of the file in brackets.
pub fn unnamed_locations(dictionary: &Dictionary) -> Vec<LocationId> {
    let is_unnamed = |id: &LocationId| {
        let location = dictionary.get_location(*id);
        let is_file = |line: &Line| {
            let name = dictionary.get_string(dictionary.get_function(line.function).name);
            name.is_empty() || name.starts_with('[') && name.ends_with(']')
        };
        location.address != 0 && !location.mapping.is_empty() && location.lines.iter().all(is_file)
    };
    (1..dictionary.lens().locations as u32).map(LocationId).filter(is_unnamed).collect()
}

/// Names locations by their symbols, mangled.
pub fn name_locations(data: &mut ProfilesData, symbols: &[(LocationId, &str)]) {
    let dictionary = &mut data.dictionary;
    let mut changes = Vec::with_capacity(symbols.len());
    for &(id, symbol) in symbols {
        let Location { mapping, address, lines, .. } = dictionary.get_location(id);
        let line = lines.first().copied().unwrap_or_default();
        let name = demangle(symbol);
        let system_name = if name.is_some() { dictionary.string(symbol) } else { StringId::EMPTY };
        let filename = match dictionary.get_function(line.function).filename {
            StringId::EMPTY => dictionary.get_mapping(mapping).filename,
            filename => filename,
        };
        let name = dictionary.string(name.as_deref().unwrap_or(symbol));
        let function = dictionary.function(Function { name, system_name, filename, start_line: 0 });
        changes.push((id, mapping, address, vec![Line { function, ..line }]));
    }
    let moved: HashMap<_, _> =
        dictionary.replace_locations(&changes).into_iter().map(|(old, new)| (old, Some(new))).collect();
    if moved.is_empty() {
        return;
    }
    // A location that was named before.
    let stacks = dictionary.replace_in_stacks(&moved, LocationId::EMPTY);
    for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        replace_samples(profile, |sample| sample.stack = stacks.get(&sample.stack).copied().unwrap_or(sample.stack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(dictionary: &mut Dictionary, function: &str, address: u64) -> LocationId {
        let filename = dictionary.string("/opt/libshop.so");
        let mapping = dictionary.mapping(Mapping { memory_limit: 0x9000, filename, ..Mapping::default() });
        let name = dictionary.string(function);
        let function = dictionary.function(Function { name, filename, ..Function::default() });
        let lines = [Line { function, ..Line::default() }];
        let lines = if name.is_empty() { &[][..] } else { &lines };
        let mapping = if address == 0 { MappingId::EMPTY } else { mapping };
        dictionary.location(Location { mapping, address, lines, ..Location::default() })
    }

    fn names(data: &ProfilesData) -> Vec<(String, i64)> {
        let dictionary = &data.dictionary;
        let name = |id: &LocationId| {
            let lines = dictionary.get_location(*id).lines;
            let function = |line: &Line| dictionary.get_function(line.function);
            lines.iter().map(|line| dictionary.get_string(function(line).name)).collect::<String>()
        };
        let sample = |sample: &Sample| {
            let stack: Vec<_> = dictionary.get_stack(sample.stack).iter().map(name).collect();
            (stack.join(" < "), sample.total())
        };
        let mut names: Vec<_> = data.profiles().flat_map(|(_, profile)| &profile.samples).map(sample).collect();
        names.sort();
        names
    }

    #[test]
    fn native_code_without_a_name_gets_that_of_its_symbol_and_equal_samples_are_added_up() {
        let mut data = ProfilesData::default();
        let dictionary = &mut data.dictionary;
        let main = location(dictionary, "main", 0);
        let reason = location(dictionary, "[code_ended]", 0);
        let leaves = [("[libshop.so]", 0x1000), ("", 0x2000), ("price", 0x1000), ("[libshop.so]", 0x3000)];
        let leaves = leaves.map(|(name, address)| location(dictionary, name, address));
        let mut samples: Vec<_> = leaves
            .iter()
            .map(|leaf| Sample { stack: dictionary.stack(&[*leaf, main]), values: vec![1], ..Sample::default() })
            .collect();
        samples.push(Sample { stack: dictionary.stack(&[reason]), values: vec![1], ..Sample::default() });
        let profile = Profile { samples, ..Profile::default() };
        data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });

        assert_eq!(unnamed_locations(&data.dictionary), [leaves[0], leaves[1], leaves[3]]);
        name_locations(&mut data, &[(leaves[0], "price"), (leaves[1], "_ZN4shop5totalEv")]);
        let expected =
            [("[code_ended]", 1), ("[libshop.so] < main", 1), ("price < main", 2), ("shop::total < main", 1)];
        assert_eq!(names(&data), expected.map(|(name, value)| (name.to_owned(), value)));
    }
}
