//! Stacks of synthetic profiles.

use spanprof_profile::{Dictionary, Function, Line, Location, StackId};

/// A function that is called: name, file, start line, and the line in it.
pub type CalledFunction<'a> = (&'a str, &'a str, i64, i64);

/// Adds the stack of these functions, leaf first.
pub fn stack_of<'a>(dictionary: &mut Dictionary, calls: impl IntoIterator<Item = CalledFunction<'a>>) -> StackId {
    let mut locations = Vec::new();
    for (name, file, start_line, line) in calls {
        let (name, filename) = (dictionary.string(name), dictionary.string(file));
        let function = dictionary.function(Function { name, filename, start_line, ..Function::default() });
        let lines = [Line { function, line, column: 0 }];
        locations.push(dictionary.location(Location { lines: &lines, ..Location::default() }));
    }
    dictionary.stack(&locations)
}
