//! Selects samples by the functions in their stacks, as `-focus` and `-ignore` of `go tool pprof` do.

use hashbrown::HashMap;
use regex_lite::Regex;
use spanprof_profile::transform::FunctionTable;
use spanprof_profile::{ProfilesData, StackId};

/// Conditions on stacks; the default selects everything. A pattern matches a function's name, its
/// file, or `name file:line` with the line where the function starts.
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
                        let function = &functions.rows()[function as usize];
                        let is_match =
                            |pattern: &Regex| is_match(pattern, &function.name, &function.file, function.start_line);
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

/// Whether a pattern of a [`StackFilter`] matches a function.
pub fn is_match(pattern: &Regex, name: &str, file: &str, start_line: i64) -> bool {
    let place = || match (file, start_line) {
        ("", _) => name.to_owned(),
        (file, 0) => format!("{name} {file}"),
        (file, line) => format!("{name} {file}:{line}"),
    };
    pattern.is_match(name) || pattern.is_match(file) || pattern.is_match(&place())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_with_the_place_selects_one_of_several_functions_of_a_name() {
        let selects =
            |pattern: &str, file: &str, line| is_match(&Regex::new(pattern).unwrap(), "(anonymous)", file, line);
        let exact = r"^\(anonymous\) app\.js:12$";
        assert_eq!(
            [("app.js", 12), ("app.js", 13), ("b.js", 12)].map(|(file, line)| selects(exact, file, line)),
            [true, false, false]
        );
        assert!(selects(r"^\(anonymous\) app\.js$", "app.js", 0) && selects(r"^\(anonymous\)$", "", 3));
        assert!(selects("anon", "app.js", 1) && selects(r"^app\.js$", "app.js", 1) && !selects("other", "app.js", 1));
    }
}
