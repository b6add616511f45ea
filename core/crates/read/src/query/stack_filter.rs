//! Selects samples by the functions in their stacks, as `-focus` and `-ignore` of `go tool pprof` do.

use hashbrown::HashMap;
use regex_lite::Regex;
use spanprof_profile::transform::{FunctionKey, FunctionTable};
use spanprof_profile::{ProfilesData, StackId};

/// Conditions on stacks; the default selects everything. A pattern matches a function's name or file.
#[derive(Clone, Debug, Default)]
pub struct StackFilter {
    /// The stack has a function that matches.
    pub focus: Option<Regex>,
    /// The stack has no function that matches.
    pub ignore: Option<Regex>,
}

impl StackFilter {
    /// Removes the other samples.
    pub fn apply(&self, data: &mut ProfilesData) {
        if self.focus.is_none() && self.ignore.is_none() {
            return;
        }
        let ProfilesData { dictionary, resources, .. } = data;
        let mut functions = FunctionTable::new(dictionary);
        // Whether each function matches `focus` and `ignore`.
        let mut matches: HashMap<u32, [bool; 2]> = HashMap::new();
        let mut passes: Vec<Option<bool>> = vec![None; dictionary.lens().stacks];
        let mut evaluate = |stack: StackId| {
            let (mut has_focus, mut has_ignored) = (self.focus.is_none(), false);
            for location in dictionary.get_stack(stack) {
                for function in functions.of_location(*location).collect::<Vec<_>>() {
                    let [focus, ignore] = *matches.entry(function).or_insert_with(|| {
                        let FunctionKey { name, file, .. } = &functions.rows()[function as usize];
                        let is_match = |pattern: &Regex| pattern.is_match(name) || pattern.is_match(file);
                        [&self.focus, &self.ignore].map(|pattern| pattern.as_ref().is_some_and(is_match))
                    });
                    has_focus |= focus;
                    has_ignored |= ignore;
                }
            }
            has_focus && !has_ignored
        };
        for profile in resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
            profile.samples.retain(|sample| match passes.get_mut(sample.stack.index()) {
                Some(known) => *known.get_or_insert_with(|| evaluate(sample.stack)),
                None => evaluate(sample.stack),
            });
        }
    }
}
