//! Reduces stacks to the type of their object, so that each query is one by type.

use spanprof_profile::code_origin::TYPE_FILE;
use spanprof_profile::{Function, Line, Location, LocationId, ProfilesData};

use super::builtins::replace_stacks;

/// The row of samples that name no type.
const NO_TYPE: &str = "(no type)";

/// Replaces each stack by the frame that names the type of its object.
pub fn reduce_to_types(data: &mut ProfilesData) {
    let dictionary = &mut data.dictionary;
    let (name, type_file) = (dictionary.string(NO_TYPE), dictionary.string(TYPE_FILE));
    let function = dictionary.function(Function { name, ..Function::default() });
    let lines = [Line { function, ..Line::default() }];
    let no_type = dictionary.location(Location { lines: &lines, ..Location::default() });
    replace_stacks(
        data,
        |_| true,
        |dictionary, stack| {
            let file_of = |line: &Line| dictionary.get_function(line.function).filename;
            let is_type =
                |leaf: &LocationId| dictionary.get_location(*leaf).lines.first().map(file_of) == Some(type_file);
            vec![stack.first().copied().filter(is_type).unwrap_or(no_type)]
        },
    );
}
