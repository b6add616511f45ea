//! The weights of the source lines of functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hashbrown::HashMap;
use spanprof_profile::code_origin::ExecutionKind;
use spanprof_profile::transform::FunctionTable;
use spanprof_profile::ProfilesData;

use super::weights::{FunctionLine, Weight};

/// A function with the weights of its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionLines {
    /// The function.
    pub location: FunctionLine,
    /// Weight of samples with the function as leaf, or as the caller of the native code there.
    pub flat: i64,
    /// By line; 0 has the samples without a line.
    pub lines: BTreeMap<i64, Weight>,
}

/// The functions of one profile type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionLineTable {
    /// [`spanprof_profile::Profile::type_name`].
    pub type_name: String,
    /// Unit of all weights.
    pub unit: String,
    /// Weight of all samples, the base of shares.
    pub total: i64,
    /// By descending flat weight, then by name.
    pub functions: Vec<FunctionLines>,
}

/// A call in a location.
#[derive(Clone, Copy)]
struct LineCall {
    function: u32,
    line: i64,
    kind: ExecutionKind,
    /// Whether the function is looked for.
    is_match: bool,
}

/// The lines of the functions for which `matches` is true. A line that a stack contains several times (recursion) counts once. A line of
/// managed code has the self weight of the native code that it called, too: that has no lines.
pub fn function_lines(
    data: &ProfilesData,
    type_name: &str,
    matches: impl Fn(&FunctionLine) -> bool,
) -> FunctionLineTable {
    let mut table = FunctionLineTable { type_name: type_name.to_owned(), ..FunctionLineTable::default() };
    let mut functions = FunctionTable::new(&data.dictionary);
    let mut matched: HashMap<u32, FunctionLines> = HashMap::new();
    // By location, once a stack has it, innermost first.
    let mut calls: Vec<Option<Vec<LineCall>>> = vec![None; data.dictionary.lens().locations];
    let mut seen: Vec<(u32, i64)> = Vec::new();
    for (_, profile) in data.profiles().filter(|(_, profile)| profile.type_name() == type_name) {
        if table.unit.is_empty() {
            profile.unit().clone_into(&mut table.unit);
        }
        for sample in &profile.samples {
            let weight = profile.weight(sample);
            table.total = table.total.saturating_add(weight);
            seen.clear();
            // Whether the calls so far are the leaf, or native code up to it.
            let (mut is_leaf, mut is_native) = (true, true);
            for location in data.dictionary.get_stack(sample.stack) {
                let Some(calls) = calls.get_mut(location.index()) else { continue };
                let calls = calls.get_or_insert_with(|| {
                    let lines = data.dictionary.get_location(*location).lines.iter().map(|line| line.line);
                    let numbers: Vec<u32> = functions.of_location(*location).collect();
                    let calls = numbers.into_iter().zip(lines.chain(std::iter::repeat(0)));
                    let call = calls.map(|(function, line)| {
                        let location = FunctionLine::from(functions.rows()[function as usize].clone());
                        let (kind, is_match) = (location.kind(), matches(&location));
                        if is_match {
                            let new = || FunctionLines { location, ..FunctionLines::default() };
                            matched.entry(function).or_insert_with(new);
                        }
                        LineCall { function, line, kind, is_match }
                    });
                    call.collect()
                });
                for LineCall { function, line, kind, is_match } in calls.iter().copied() {
                    let is_self = is_leaf || is_native && kind == ExecutionKind::Managed;
                    is_leaf = false;
                    is_native &= kind == ExecutionKind::Native;
                    if !is_match || seen.contains(&(function, line)) {
                        continue;
                    }
                    seen.push((function, line));
                    let Some(row) = matched.get_mut(&function) else { continue };
                    let sum = row.lines.entry(line.max(0)).or_default();
                    sum.cum = sum.cum.saturating_add(weight);
                    if is_self {
                        sum.flat = sum.flat.saturating_add(weight);
                        row.flat = row.flat.saturating_add(weight);
                    }
                }
            }
        }
    }
    table.functions = matched.into_values().collect();
    table
        .functions
        .sort_by(|one, other| (Reverse(one.flat), &one.location).cmp(&(Reverse(other.flat), &other.location)));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::{Function, Line, Location, Profile, ResourceProfiles, Sample};

    /// Name, start line and line of a call.
    type Call = (&'static str, i64, i64);

    /// Stacks leaf first, with their weight.
    fn data(stacks: &[(&[Call], i64)]) -> ProfilesData {
        let mut data = ProfilesData::default();
        let mut samples = Vec::new();
        for (stack, weight) in stacks {
            let mut locations = Vec::new();
            for (name, start_line, line) in *stack {
                let file = if *start_line == 0 { "/lib/addon.node" } else { "app.js" };
                let (name, filename) = (data.dictionary.string(name), data.dictionary.string(file));
                let function = Function { name, filename, start_line: *start_line, ..Function::default() };
                let function = data.dictionary.function(function);
                let lines = vec![Line { function, line: *line, ..Line::default() }];
                locations.push(data.dictionary.location(Location { lines: &lines, ..Location::default() }));
            }
            let stack = data.dictionary.stack(&locations);
            samples.push(Sample { stack, values: vec![*weight], ..Sample::default() });
        }
        let profile = Profile { samples, ..Profile::default() };
        data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
        data
    }

    #[test]
    fn functions_of_one_name_have_their_own_lines_and_recursion_counts_once() {
        let data = data(&[
            (&[("then", 10, 12), ("then", 10, 11), ("then", 10, 12), ("main", 1, 2)], 5),
            (&[("leaf", 30, 31), ("then", 10, 11), ("main", 1, 2)], 3),
            (&[("then", 20, 12), ("main", 1, 2)], 7),
        ]);
        let type_name = data.profiles().next().unwrap().1.type_name().to_owned();
        let table = function_lines(&data, &type_name, |function| function.function == "then");
        assert_eq!(table.total, 15);
        let rows: Vec<_> = table.functions.iter().map(|row| (row.location.line, row.flat, row.lines.clone())).collect();
        let weight = |flat, cum| Weight { flat, cum };
        let first = BTreeMap::from([(12, weight(7, 7))]);
        let second = BTreeMap::from([(11, weight(0, 8)), (12, weight(5, 5))]);
        assert_eq!(rows, [(20, 7, first), (10, 5, second)]);
    }

    #[test]
    fn a_line_has_the_native_code_that_it_called_and_native_functions_keep_their_own_weight() {
        let data = data(&[
            (&[("fill", 0, 0), ("hash", 0, 0), ("login", 10, 12), ("main", 1, 2)], 5),
            (&[("login", 10, 11), ("main", 1, 2)], 2),
            (&[("callback", 30, 31), ("each", 0, 0), ("login", 10, 12)], 3),
            (&[("fill", 0, 0), ("start_thread", 0, 0)], 7),
        ]);
        let type_name = data.profiles().next().unwrap().1.type_name().to_owned();
        let table = function_lines(&data, &type_name, |_| true);
        let row_of = |name: &str| table.functions.iter().find(|row| row.location.function == name).expect(name);
        let weight = |flat, cum| Weight { flat, cum };
        assert_eq!(row_of("login").lines, BTreeMap::from([(11, weight(2, 2)), (12, weight(5, 8))]));
        assert_eq!(
            (row_of("login").flat, row_of("fill").flat, row_of("hash").flat, row_of("main").flat),
            (7, 12, 0, 0)
        );
        assert_eq!(row_of("callback").lines[&31], weight(3, 3));
    }
}
