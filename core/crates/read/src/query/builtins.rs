//! Folds native code below the built-in functions of a script language into them: the time of `v8::internal::JsonParser` is that of
//! `JSON.parse`. Scripts that a builtin calls back, and activities such as `(garbage collector)`, stay.

use hashbrown::HashMap;
use spanprof_profile::{Dictionary, FrameType, FunctionId, LocationId, ProfilesData, StackId, StringId};

/// File of the frames of built-in functions, as the Node.js package names them.
const BUILTIN_FILE: &str = "v8:builtin";

/// The code at a location.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    Builtin(FunctionId),
    Native,
    Other,
}

/// Whether [`fold_builtins`] may change the data.
pub fn has_builtins(data: &ProfilesData) -> bool {
    data.dictionary.find_string(BUILTIN_FILE).is_some()
}

/// Removes the native frames below built-in functions, and repeated frames of one builtin. Other profiles do not change.
pub fn fold_builtins(data: &mut ProfilesData) {
    let ProfilesData { dictionary, resources } = data;
    let Some(builtin_file) = dictionary.find_string(BUILTIN_FILE) else { return };
    let mut folded: HashMap<StackId, StackId> = HashMap::new();
    let profiles = resources.iter_mut().flat_map(|resource| &mut resource.profiles);
    for sample in profiles.flat_map(|profile| &mut profile.samples) {
        sample.stack = *folded.entry(sample.stack).or_insert_with(|| {
            let mut caller = Code::Other;
            let mut kept: Vec<LocationId> = Vec::new();
            for location in dictionary.get_stack(sample.stack).iter().rev() {
                let code = code_at(dictionary, *location, builtin_file);
                let is_part = matches!(caller, Code::Builtin(_)) && (code == Code::Native || code == caller);
                if !is_part {
                    kept.push(*location);
                    caller = code;
                }
            }
            kept.reverse();
            dictionary.stack(&kept)
        });
    }
}

fn code_at(dictionary: &Dictionary, id: LocationId, builtin_file: StringId) -> Code {
    let location = dictionary.get_location(id);
    let Some(line) = location.lines.first() else { return Code::Native };
    let function = dictionary.get_function(line.function);
    let is_activity = || dictionary.get_string(function.name).starts_with(['(', '[']);
    match dictionary.frame_type_of(id) {
        _ if function.filename == builtin_file => Code::Builtin(line.function),
        _ if dictionary.get_string(function.filename).is_empty() && is_activity() => Code::Other,
        FrameType::Native => Code::Native,
        // pprof files have no frame types; only native code has no lines.
        FrameType::Unspecified if line.line == 0 && function.start_line == 0 => Code::Native,
        _ => Code::Other,
    }
}

#[cfg(test)]
mod tests {
    use spanprof_profile::{Function, Line, Location, Profile, ResourceProfiles, Sample};

    use super::*;

    fn folded(frames: &[(&str, &str, FrameType)]) -> Vec<String> {
        let mut data = ProfilesData::default();
        let dictionary = &mut data.dictionary;
        let locations: Vec<LocationId> = frames
            .iter()
            .map(|(name, file, frame_type)| {
                let (name, filename) = (dictionary.string(name), dictionary.string(file));
                let function = dictionary.function(Function { name, filename, ..Function::default() });
                let attributes = dictionary.frame_type(*frame_type);
                dictionary.location(Location {
                    lines: &[Line { function, line: i64::from(file.starts_with('/')), ..Line::default() }],
                    attributes,
                    ..Location::default()
                })
            })
            .rev()
            .collect();
        let stack = dictionary.stack(&locations);
        let samples = vec![Sample { stack, ..Sample::default() }];
        data.resources.push(ResourceProfiles {
            profiles: vec![Profile { samples, ..Profile::default() }],
            ..ResourceProfiles::default()
        });
        fold_builtins(&mut data);
        let dictionary = &data.dictionary;
        let names = dictionary.get_stack(data.resources[0].profiles[0].samples[0].stack).iter().rev().map(|location| {
            let line = dictionary.get_location(*location).lines[0];
            dictionary.get_string(dictionary.get_function(line.function).name).to_owned()
        });
        names.collect()
    }

    #[test]
    fn native_code_below_a_builtin_is_its_time_and_scripts_that_it_calls_stay() {
        for (native, script) in [(FrameType::Native, FrameType::V8js), (FrameType::Unspecified, FrameType::Unspecified)]
        {
            let stack = [
                ("handle", "/srv/a.js", script),
                ("LoadIC", "", native),
                ("Array.map", "v8:builtin", script),
                ("Array.map", "v8:builtin", script),
                ("CallVarargs", "node", native),
                ("each", "/srv/a.js", script),
                ("JSON.parse", "v8:builtin", script),
                ("v8::internal::JsonParser::Parse", "", native),
                ("(garbage collector)", "", FrameType::Unspecified),
                ("v8::internal::Heap::Scavenge", "", native),
            ];
            let rest = ["(garbage collector)", "v8::internal::Heap::Scavenge"];
            assert_eq!(folded(&stack), [&["handle", "LoadIC", "Array.map", "each", "JSON.parse"][..], &rest].concat());
        }
        assert_eq!(
            folded(&[("main", "/srv/a.rs", FrameType::Rust), ("malloc", "", FrameType::Native)]),
            ["main", "malloc"]
        );
    }
}
