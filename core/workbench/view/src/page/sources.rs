//! Source lines in a page: the text of functions with the weights of their lines, which a page cannot derive from its call paths.

use std::fmt::Write;

use hashbrown::HashMap;

use super::write_list;
use crate::flamegraph::write_text;
use spanprof_profile::transform::FunctionKey;

/// The source text of a function.
#[derive(Clone, Debug, Default)]
pub struct PageSource {
    /// The function.
    pub function: FunctionKey,
    /// Path of the file, as it was found.
    pub path: String,
    /// Number of the first line, from 1.
    pub first_line: i64,
    /// Text of the lines.
    pub lines: Vec<String>,
    /// By profile type: number, self weight and total weight of each line that has a weight.
    pub weights: Vec<(String, Vec<[i64; 3]>)>,
}

/// The member `sources`, after another member: by function its number, path, first line, text of the lines, and the weights by
/// type. Functions that are not in `functions` are left out.
pub(super) fn write(out: &mut String, sources: &[PageSource], functions: &[FunctionKey]) {
    if sources.is_empty() {
        return;
    }
    let numbers: HashMap<&FunctionKey, usize> =
        functions.iter().enumerate().skip(1).map(|(number, function)| (function, number)).collect();
    let known = sources.iter().filter_map(|source| Some((numbers.get(&source.function)?, source)));
    write_list(out, "sources", known, |out, (number, source)| {
        let _ = write!(out, "{{\"function\":{number},\"first\":{},\"path\":", source.first_line);
        write_text(out, &source.path);
        write_list(out, "text", source.lines.iter(), |out, line| write_text(out, line));
        out.push_str(",\"weights\":{\"\":[]");
        for (type_name, lines) in &source.weights {
            out.push(',');
            write_text(out, type_name);
            let _ = write!(out, ":{lines:?}");
        }
        out.push_str("}}");
    });
}
