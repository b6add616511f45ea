//! The source text in a page: of the heaviest functions whose files are below the directories of `--source-path`.

use std::collections::{BTreeSet, HashMap};

use spanprof_profile::transform::FunctionKey;
use spanprof_profile::ProfilesData;
use spanprof_read::query::{self, FunctionLine, FunctionLines};
use spanprof_view::page::PageSource;

use crate::sources::{self, SourceFile, SourcePaths};

/// Text of all functions. The page of a run with 10,000 stacks has about as much.
const MAX_BYTES: usize = 1 << 20;
/// Lines of a function, with its hottest line in the middle.
const MAX_LINES: usize = 200;

/// The functions with text, by the largest share of a profile type that they have.
pub fn page_sources(data: &ProfilesData, paths: &SourcePaths) -> Vec<PageSource> {
    let types: BTreeSet<&str> = data.profiles().map(|(_, profile)| profile.type_name()).collect();
    let mut functions: HashMap<FunctionLine, (f64, Vec<TypeLines>)> = HashMap::new();
    for type_name in types {
        let table = query::function_lines(data, type_name, |_| true);
        for lines in table.functions {
            let weight = lines.lines.values().map(|weight| weight.cum).max().unwrap_or_default();
            let (share, by_type) = functions.entry(lines.location.clone()).or_default();
            *share = share.max(weight as f64 / table.total.max(1) as f64);
            by_type.push(TypeLines { type_name, total: table.total.max(1), lines });
        }
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by(|(one, (share, _)), (other, (other_share, _))| {
        other_share.total_cmp(share).then_with(|| one.cmp(other))
    });
    // Functions of one file follow each other rarely: each file is found once. A bare name depends on the class of the function.
    let mut files: HashMap<(String, String), Option<SourceFile>> = HashMap::new();
    let mut bytes = 0;
    let mut found = Vec::new();
    for (at, (_, by_type)) in functions {
        if at.file.is_empty() {
            continue;
        }
        let class = if at.file.contains('/') { String::new() } else { at.function.clone() };
        let file = files.entry((at.file.clone(), class)).or_insert_with(|| paths.read(&at));
        let Some(source) = file.as_ref().and_then(|file| source_of(at, &by_type, file)) else { continue };
        let size = source.path.len() + source.lines.iter().map(|line| line.len() + 3).sum::<usize>();
        if bytes + size <= MAX_BYTES {
            bytes += size;
            found.push(source);
        }
    }
    found
}

/// The lines of a function in one profile type, whose samples weigh `total`.
struct TypeLines<'t> {
    type_name: &'t str,
    total: i64,
    lines: FunctionLines,
}

/// The lines of a function around those with a weight; `None` if no line is known.
fn source_of(at: FunctionLine, by_type: &[TypeLines], file: &SourceFile) -> Option<PageSource> {
    let mut all = FunctionLines::default();
    let mut hottest = (0, [0.0; 2]);
    for TypeLines { total, lines, .. } in by_type {
        for (line, weight) in lines.lines.iter().filter(|(line, _)| **line > 0) {
            all.lines.entry(*line).or_default();
            let shares = [weight.flat, weight.cum].map(|weight| weight as f64 / *total as f64);
            if shares > hottest.1 {
                hottest = (*line, shares);
            }
        }
    }
    let mut shown = sources::shown_lines(&all, Some(&file.lines));
    if shown.len() > MAX_LINES {
        let middle = shown.iter().position(|line| *line == hottest.0).unwrap_or_default();
        let start = middle.saturating_sub(MAX_LINES / 2).min(shown.len() - MAX_LINES);
        shown = shown[start..start + MAX_LINES].to_vec();
    }
    let first_line = *shown.first()?;
    let text = |line: &i64| sources::line_text(Some(&file.lines), *line).unwrap_or_default().to_owned();
    let weights = |TypeLines { type_name, lines, .. }: &TypeLines| {
        let weighted = lines.lines.iter().filter(|(line, _)| shown.contains(line));
        let lines = weighted.map(|(line, weight)| [*line, weight.flat, weight.cum]).collect();
        ((*type_name).to_owned(), lines)
    };
    let FunctionLine { function: name, file: file_name, line: start_line, frame_type, recorded } = at;
    Some(PageSource {
        function: FunctionKey { name, file: file_name, start_line, frame_type, recorded },
        path: file.path.to_string_lossy().into_owned(),
        first_line,
        lines: shown.iter().map(text).collect(),
        weights: by_type.iter().map(weights).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::{Function, Line, Location, Profile, ResourceProfiles, Sample, ValueType};

    /// CPU time by function and line; each function is in a file of its name.
    fn profiles(samples: &[(&str, i64, i64)]) -> ProfilesData {
        let mut data = ProfilesData::default();
        let cpu = ValueType::new("cpu", "nanoseconds");
        let mut profile = Profile { sample_type: cpu.clone(), period_type: cpu, ..Profile::default() };
        for (name, line, weight) in samples {
            let filename = data.dictionary.string(&format!("/build/app/{name}.py"));
            let name = data.dictionary.string(name);
            let function = data.dictionary.function(Function { name, filename, ..Function::default() });
            let lines = [Line { function, line: *line, ..Line::default() }];
            let location = data.dictionary.location(Location { lines: &lines, ..Location::default() });
            let stack = data.dictionary.stack(&[location]);
            profile.samples.push(Sample { stack, values: vec![*weight], ..Sample::default() });
        }
        data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
        data
    }

    fn file_of(count: usize, width: usize) -> String {
        (1..=count).map(|line| format!("{line:0width$}\n")).collect()
    }

    #[test]
    fn a_function_has_the_lines_around_its_hottest_line_and_files_elsewhere_are_not_read() {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(home.path().join("src/app")).unwrap();
        std::fs::write(home.path().join("src/app/short.py"), file_of(30, 4)).unwrap();
        std::fs::write(home.path().join("src/app/long.py"), file_of(900, 4)).unwrap();
        std::fs::write(home.path().join("secret.py"), "secret").unwrap();
        let data = profiles(&[("short", 12, 7), ("long", 10, 1), ("long", 500, 8), ("long", 890, 1), ("secret", 1, 9)]);
        let paths = SourcePaths::only_below(vec![home.path().join("src")], None);
        let found = page_sources(&data, &paths);
        let facts = |source: &PageSource| (source.function.name.clone(), source.first_line, source.lines.len());
        assert_eq!(
            found.iter().map(facts).collect::<Vec<_>>(),
            [("long".to_owned(), 400, MAX_LINES), ("short".to_owned(), 9, 7)]
        );
        assert_eq!((&*found[0].lines[100], &*found[0].path), ("0500", "app/long.py"));
        assert_eq!(found[0].weights, [("cpu".to_owned(), vec![[500, 8, 8]])]);
        assert_eq!(found[1].weights, [("cpu".to_owned(), vec![[12, 7, 7]])]);
    }

    #[test]
    fn text_beyond_the_limit_is_left_out_lightest_first() {
        let home = tempfile::tempdir().expect("a directory");
        let names: Vec<String> = (0..8).map(|number| format!("f{number}")).collect();
        // Seven lines around line 5 are 280 KB: three functions fit.
        for name in &names {
            std::fs::write(home.path().join(format!("{name}.py")), file_of(9, 40_000)).unwrap();
        }
        let samples: Vec<_> = names.iter().zip(1..).map(|(name, weight)| (name.as_str(), 5, weight)).collect();
        let found = page_sources(&profiles(&samples), &SourcePaths::only_below(vec![home.path().to_owned()], None));
        let kept: Vec<&str> = found.iter().map(|source| &*source.function.name).collect();
        assert_eq!(kept, ["f7", "f6", "f5"]);
    }
}
