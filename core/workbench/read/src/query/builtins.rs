//! Folds code of runtimes into the functions that call it. Native code below the built-in functions of a script language: the time of
//! the engine's `JsonParser` is that of `JSON.parse`. Scripts that a builtin calls back, and activities such as `(garbage collector)`,
//! stay. Generated code of the Java VM: the time of `[monitorenter_nofpu Runtime1 stub]` is that of the method that enters the monitor.

use hashbrown::HashMap;
use spanprof_profile::kinds::GC;
use spanprof_profile::{Dictionary, FrameType, FunctionId, LocationId, Profile, ProfilesData, StackId, StringId};

/// File of the frames of built-in functions, as the Node.js package names them.
const BUILTIN_FILE: &str = "v8:builtin";

/// Generated code of the Java VM without a name, as the Java package names it.
const UNNAMED_STUBS: [&str; 2] = ["[stub]", "[generated_code]"];

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

/// Folds the code of all runtimes, for comparisons of requests.
pub fn fold_runtime_code(data: &mut ProfilesData) {
    fold_builtins(data);
    fold_vm_stubs(data);
}

/// Removes the native frames below built-in functions, and repeated frames of one builtin. Other profiles do not change.
pub fn fold_builtins(data: &mut ProfilesData) {
    let Some(builtin_file) = data.dictionary.find_string(BUILTIN_FILE) else { return };
    replace_stacks(
        data,
        |_| true,
        |dictionary, stack| {
            let mut caller = Code::Other;
            let mut kept: Vec<LocationId> = Vec::new();
            for location in stack.iter().rev() {
                let code = code_at(dictionary, *location, builtin_file);
                let is_part = matches!(caller, Code::Builtin(_)) && (code == Code::Native || code == caller);
                if !is_part {
                    kept.push(*location);
                    caller = code;
                }
            }
            kept.reverse();
            kept
        },
    );
}

/// Removes the generated code of the Java VM below methods, whose names are those of HotSpot in brackets. A frame such as `[lock]` has no
/// frame type of the VM. Collections have, and profiles of them stay as they are.
fn fold_vm_stubs(data: &mut ProfilesData) {
    replace_stacks(
        data,
        |profile| !GC.has(profile.type_name()),
        |dictionary, stack| {
            let is_kept =
                |(nth, location): &(usize, &LocationId)| nth + 1 == stack.len() || !is_vm_stub(dictionary, **location);
            stack.iter().enumerate().filter(is_kept).map(|(_, location)| *location).collect()
        },
    );
}

/// Replaces the stacks of the samples of some profiles, each distinct one once.
pub(super) fn replace_stacks(
    data: &mut ProfilesData,
    is_selected: impl Fn(&Profile) -> bool,
    folded: impl Fn(&Dictionary, &[LocationId]) -> Vec<LocationId>,
) {
    let ProfilesData { dictionary, resources } = data;
    let mut known: HashMap<StackId, StackId> = HashMap::new();
    let profiles = resources.iter_mut().flat_map(|resource| &mut resource.profiles);
    for sample in profiles.filter(|profile| is_selected(profile)).flat_map(|profile| &mut profile.samples) {
        sample.stack = *known.entry(sample.stack).or_insert_with(|| {
            let kept = folded(dictionary, dictionary.get_stack(sample.stack));
            dictionary.stack(&kept)
        });
    }
}

fn is_vm_stub(dictionary: &Dictionary, id: LocationId) -> bool {
    let Some(line) = dictionary.get_location(id).lines.first() else { return false };
    let function = dictionary.get_function(line.function);
    let name = dictionary.get_string(function.name);
    let is_stub = match dictionary.frame_type_of(id) {
        FrameType::Jvm => name.starts_with('['),
        FrameType::Unspecified => UNNAMED_STUBS.contains(&name),
        _ => false,
    };
    is_stub && dictionary.get_string(function.filename).is_empty()
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
    use spanprof_profile::{Function, Line, Location, ResourceProfiles, Sample, ValueType};

    use super::*;

    fn folded(frames: &[(&str, &str, FrameType)]) -> Vec<String> {
        folded_in("cpu", frames)
    }

    fn folded_in(type_name: &str, frames: &[(&str, &str, FrameType)]) -> Vec<String> {
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
            profiles: vec![Profile {
                sample_type: ValueType::new(type_name, "nanoseconds"),
                samples,
                ..Profile::default()
            }],
            ..ResourceProfiles::default()
        });
        fold_runtime_code(&mut data);
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

    #[test]
    fn stubs_of_the_java_vm_are_the_time_of_the_method_that_calls_them() {
        let stack = [
            ("[call_stub]", "", FrameType::Jvm),
            ("Shop.addOrder", "Shop.java", FrameType::Jvm),
            ("[monitorenter_nofpu Runtime1 stub]", "", FrameType::Jvm),
            ("[stub]", "", FrameType::Unspecified),
            ("[lock]", "", FrameType::Unspecified),
        ];
        assert_eq!(folded_in("off_cpu", &stack), ["[call_stub]", "Shop.addOrder", "[lock]"]);
        assert_eq!(folded_in("off_cpu", &stack[1..3]), ["Shop.addOrder"]);
        let collection =
            [("Shop.addOrder", "Shop.java", FrameType::Jvm), ("[G1 Young Generation]", "", FrameType::Jvm)];
        assert_eq!(folded_in("gc", &collection), ["Shop.addOrder", "[G1 Young Generation]"]);
    }
}
