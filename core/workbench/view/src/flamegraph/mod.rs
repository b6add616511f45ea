//! The flame graph of a page: its renderer, and stack trees as JSON for it. Text of a profile is escaped and can become neither
//! markup nor script.

use std::fmt::Write;

use hashbrown::HashMap;

use crate::compact::compact;
use spanprof_profile::transform::{FunctionKey, PrunedTree, StackTree};

/// The renderer's style sheet; every rule is below `.flamegraph`.
pub const STYLE: &str = compact!(include_str!("flamegraph.css"));

/// The renderer: `new Flamegraph(element)` has `.show(tree)` with the value of [`json`], `.search(text)`, `.reset()` and
/// `.resize()`. With the value of [`pruned_json`], `.onzoom` is called with the path to request. It follows `data-theme` of the document's root, else the system's color scheme. `DiffFlamegraph` is the same for the
/// value of [`diff_json`].
pub const SCRIPT: &str = compact!(concat!(
    "window.Flamegraph = (() => {\n\"use strict\";\n",
    include_str!("nodes.js"),
    include_str!("flamegraph.js"),
    include_str!("menu.js"),
    "return Flamegraph;\n})();\n",
    include_str!("diff.js")
));

/// Weights of the two sides of a comparison and the outcome of its tests, by node of a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiffColumns {
    /// Self weights of the baseline.
    pub baseline: Vec<i64>,
    /// Self weights of the comparison.
    pub comparison: Vec<i64>,
    /// 95 % interval of the growth of the total weight; `None` where nothing can be concluded.
    pub intervals: Vec<Option<(f64, f64)>>,
    /// Whether the growth is significant.
    pub significant: Vec<bool>,
}

/// The tree as compact JSON for the renderer. `names`, `file` (index into `files`), `lines` (where the function starts, 0 when
/// unknown) and `kind` (index into `kinds`) are per function; `nodes` has level, function and self weight of each node, depth first.
pub fn json(tree: &StackTree) -> String {
    let mut out = String::with_capacity(tree.nodes.len() * 12);
    write_tree(&mut out, tree);
    out.push('}');
    out
}

/// As [`json()`] for the kept nodes. The member `elided` has the weight of the dropped callees by node; it is absent if nothing
/// was dropped. With the text and the matched weight of a search in the whole tree as the members `search` and `matched`.
pub fn pruned_json(PrunedTree { tree, elided }: &PrunedTree, search: Option<(&str, i64)>) -> String {
    let mut out = String::with_capacity(tree.nodes.len() * 16);
    write_tree(&mut out, tree);
    if elided.iter().any(|weight| *weight != 0) {
        write_numbers(&mut out, "elided", elided.iter().copied());
    }
    if let Some((text, matched)) = search {
        out.push_str(",\"search\":");
        write_text(&mut out, text);
        // Writing to a String cannot fail.
        let _ = write!(out, ",\"matched\":{matched}");
    }
    out.push('}');
    out
}

/// As [`json`], with the member `diff`: the columns of a comparison by node. The self weights of `nodes` are those of `tree`.
pub fn diff_json(tree: &StackTree, diff: &DiffColumns) -> String {
    let mut out = String::with_capacity(tree.nodes.len() * 40);
    write_tree(&mut out, tree);
    write_diff(&mut out, diff);
    out.push('}');
    out
}

/// The members of a tree, without the final brace.
fn write_tree(out: &mut String, tree: &StackTree) {
    out.push_str("{\"type\":");
    write_text(out, &tree.type_name);
    out.push_str(",\"unit\":");
    write_text(out, &tree.unit);
    write_functions(out, &tree.functions);
    let nodes = tree.nodes.iter().zip(tree.depths());
    let triples = nodes.flat_map(|(node, depth)| [i64::from(depth), i64::from(node.function), node.self_weight]);
    write_numbers(out, "nodes", triples);
}

/// The members of functions, after another member.
pub(crate) fn write_functions(out: &mut String, functions: &[FunctionKey]) {
    let mut files: Vec<&str> = Vec::new();
    let mut kinds: Vec<&str> = Vec::new();
    let mut known = HashMap::new();
    let mut file_of = Vec::with_capacity(functions.len());
    let mut kind_of = Vec::with_capacity(functions.len());
    for FunctionKey { file, frame_type, .. } in functions {
        file_of.push(*known.entry(file.as_str()).or_insert_with(|| {
            files.push(file);
            files.len() - 1
        }));
        let kind = frame_type.as_str().unwrap_or("");
        kind_of.push(kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        }));
    }
    write_texts(out, "names", functions.iter().map(|function| function.name.as_str()));
    write_texts(out, "files", files.into_iter());
    write_numbers(out, "file", file_of.into_iter().map(|at| at as i64));
    write_numbers(out, "lines", functions.iter().map(|function| function.start_line));
    write_texts(out, "kinds", kinds.into_iter());
    write_numbers(out, "kind", kind_of.into_iter().map(|at| at as i64));
    write_numbers(out, "origin", functions.iter().map(|function| function.origin() as i64));
}

fn write_diff(out: &mut String, diff: &DiffColumns) {
    out.push_str(",\"diff\":{\"significant\":[");
    for (nth, significant) in diff.significant.iter().enumerate() {
        let _ = write!(out, "{}{}", if nth > 0 { "," } else { "" }, u8::from(*significant));
    }
    out.push(']');
    write_numbers(out, "baseline", diff.baseline.iter().copied());
    write_numbers(out, "comparison", diff.comparison.iter().copied());
    let mut write_ends = |name, end: fn((f64, f64)) -> f64| {
        begin_list(out, name);
        for (nth, interval) in diff.intervals.iter().enumerate() {
            let separator = if nth > 0 { "," } else { "" };
            // JSON has no infinity: the growth of a new path has no upper end.
            let _ = match interval.map(end).filter(|end| end.is_finite()) {
                Some(end) => write!(out, "{separator}{end:.4}"),
                None => write!(out, "{separator}null"),
            };
        }
        out.push(']');
    };
    write_ends("low", |(low, _)| low);
    write_ends("high", |(_, high)| high);
    out.push('}');
}

fn write_texts<'t>(out: &mut String, name: &str, texts: impl Iterator<Item = &'t str>) {
    begin_list(out, name);
    for (nth, text) in texts.enumerate() {
        if nth > 0 {
            out.push(',');
        }
        write_text(out, text);
    }
    out.push(']');
}

/// A member with a list of numbers, after another member.
pub(crate) fn write_numbers(out: &mut String, name: &str, mut numbers: impl Iterator<Item = i64>) {
    write_any_numbers(out, name, &mut numbers);
}

/// One instance for all iterators.
fn write_any_numbers(out: &mut String, name: &str, numbers: &mut dyn Iterator<Item = i64>) {
    begin_list(out, name);
    for (nth, number) in numbers.enumerate() {
        // Writing to a String cannot fail.
        let _ = if nth > 0 { write!(out, ",{number}") } else { write!(out, "{number}") };
    }
    out.push(']');
}

fn begin_list(out: &mut String, name: &str) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":[");
}

/// A JSON string that is safe inside a script element: `<` is escaped, and so are U+2028 and U+2029, which end a line
/// in ECMAScript before 2019.
pub(crate) fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

pub(crate) fn escape_markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::transform::StackNode;
    use spanprof_profile::FrameType;

    fn tree() -> StackTree {
        let node =
            |parent, function, self_weight, total_weight| StackNode { parent, function, self_weight, total_weight };
        let function = |name: &str, file: &str, start_line, frame_type| FunctionKey {
            name: name.to_owned(),
            file: file.to_owned(),
            start_line,
            frame_type,
            ..FunctionKey::default()
        };
        StackTree {
            type_name: "cpu".to_owned(),
            unit: "nanoseconds".to_owned(),
            functions: vec![
                function("root", "", 0, FrameType::Unspecified),
                function("main", "app.py", 7, FrameType::Cpython),
                function("a \"<b>\" \\ \u{1}", "app.py", 0, FrameType::Cpython),
            ],
            nodes: vec![node(0, 0, 0, 30), node(0, 1, 10, 30), node(1, 2, 20, 20)],
        }
    }

    #[test]
    fn the_tree_is_compact_json() {
        let expected = concat!(
            r#"{"type":"cpu","unit":"nanoseconds","names":["root","main","a \"\u003cb\u003e\" \\ \u0001"],"#,
            r#""files":["","app.py"],"file":[0,1,1],"lines":[0,7,0],"kinds":["","cpython"],"kind":[0,1,1],"origin":[3,0,0],"#,
            r#""nodes":[0,0,0,1,1,10,2,2,20]}"#
        );
        assert_eq!(json(&tree()), expected);
        let read: serde_json::Value = serde_json::from_str(expected).expect("valid JSON");
        assert_eq!(read["names"][2], "a \"<b>\" \\ \u{1}");
    }

    #[test]
    fn a_pruned_tree_has_the_elided_weight_of_each_node() {
        let read = |pruned: &PrunedTree, search| -> serde_json::Value {
            serde_json::from_str(&pruned_json(pruned, search)).expect("valid JSON")
        };
        let pruned = read(&tree().pruned(0, 25, 100), Some(("a \"", 20)));
        assert_eq!((&pruned["nodes"], &pruned["elided"]), (&[0, 0, 0, 1, 1, 10][..].into(), &[0, 20][..].into()));
        assert_eq!(
            (&pruned["names"], &pruned["search"], &pruned["matched"]),
            (&["root", "main"][..].into(), &"a \"".into(), &20.into())
        );
        let whole = read(&tree().pruned(0, 1, 100), None);
        assert_eq!(whole, serde_json::from_str::<serde_json::Value>(&json(&tree())).expect("valid JSON"));
    }

    #[test]
    fn a_comparison_adds_a_column_per_property() {
        let diff = DiffColumns {
            baseline: vec![0, 10, 0],
            comparison: vec![0, 5, 20],
            intervals: vec![None, Some((-0.75, -0.25)), Some((2.0, f64::INFINITY))],
            significant: vec![false, true, true],
        };
        let read: serde_json::Value = serde_json::from_str(&diff_json(&tree(), &diff)).expect("valid JSON");
        let expected = serde_json::json!({
            "significant": [0, 1, 1], "baseline": [0, 10, 0], "comparison": [0, 5, 20],
            "low": [null, -0.75, 2.0], "high": [null, -0.25, null],
        });
        assert_eq!(read["diff"], expected);
    }
}
