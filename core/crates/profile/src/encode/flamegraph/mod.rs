//! The flame graph: one self-contained HTML page, and the parts of it that the command line's page uses too.

use crate::query::StackTree;

/// The renderer's style sheet.
pub const STYLE: &str = "";
/// The renderer: defines `Flamegraph(element)` with `.show(tree)`, where `tree` is the value of [`json`].
pub const SCRIPT: &str = "";

/// A whole page that works offline.
pub fn html(tree: &StackTree, title: &str) -> String {
    let _ = (tree, title);
    String::new()
}

/// The tree as compact JSON for the renderer.
pub fn json(tree: &StackTree) -> String {
    let _ = tree;
    String::new()
}
