//! `/api/flamegraph`: the call tree, whole or as far as it is visible at a width.

use std::sync::Arc;

use serde_json::{Map, Value};
use spanprof_profile::code_origin::CodeOrigin;
use spanprof_profile::encode::flamegraph;
use spanprof_profile::transform::{FunctionKey, StackTree};

use super::name_search::NameSearch;
use crate::serve::query::queries::QueryResult;

/// Parameters beside those of the filter.
pub(crate) const PARAMETERS: [&str; 9] =
    ["callers", "fold", "group", "invert", "native", "path", "recursion", "search", "width"];
/// A node is at least a quarter of a pixel wide. The renderer draws nodes from 0.35 pixels on.
const NODES_PER_PIXEL_OF_A_ROW: i64 = 4;
/// The heaviest nodes of all rows, about half a megabyte at 1,500 pixels.
const NODES_PER_PIXEL: usize = 16;
/// Wider canvases do not exist.
const MAX_WIDTH: usize = 20_000;

/// The part of the tree that a request asks for.
pub(crate) struct FlameRequest {
    /// Width of the canvas in CSS pixels; `None` for the whole tree.
    width: Option<usize>,
    /// Keys of the functions from the root to the zoomed node.
    path: Vec<u32>,
    search: String,
    /// Whether libraries and the runtime are folded.
    is_folded: bool,
}

impl FlameRequest {
    pub(crate) fn parse(parameter: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let parameter = |name: &str| parameter(name).filter(|value| !value.is_empty());
        let width = parameter("width").map(|text| match text.parse() {
            Ok(width) if width > 0 => Ok(usize::min(width, MAX_WIDTH)),
            _ => Err(format!("`width`: expected a number of pixels, got `{text}`")),
        });
        let path = parameter("path").map(|text| {
            let keys = text.split('.').map(|key| u32::from_str_radix(key, 16));
            keys.collect::<Result<Vec<u32>, _>>()
                .map_err(|_| format!("`path`: expected keys such as 1a2b3c4d.00c0ffee, got `{text:.100}`"))
        });
        Ok(Self {
            width: width.transpose()?,
            path: path.transpose()?.unwrap_or_default(),
            search: parameter("search").unwrap_or_default().trim().to_owned(),
            is_folded: match parameter("fold").as_deref() {
                None => false,
                Some("libraries") => true,
                Some(other) => return Err(format!("`fold`: expected libraries, got `{other}`")),
            },
        })
    }

    /// Whether libraries and the runtime are folded.
    pub(crate) fn is_folded(&self) -> bool {
        self.is_folded
    }

    /// The functions that are not folded: a search would not find a match within a folded frame.
    pub(crate) fn unfolded(&self) -> impl Fn(&FunctionKey) -> bool {
        let search = NameSearch::parse(&self.search);
        move |function: &FunctionKey| {
            search.as_ref().is_some_and(|search| search.matches(&function.name, &function.file, function.start_line))
        }
    }

    /// The identity of the folding of `functions`.
    pub(crate) fn folding_key(&self, functions: impl FnOnce() -> Arc<StackTree>) -> String {
        let is_match = self.unfolded();
        let is_hidden = |function: &FunctionKey| function.origin() != CodeOrigin::Own && is_match(function);
        let has_hidden = !self.search.is_empty() && functions().functions.iter().skip(1).any(is_hidden);
        format!("fold={}\n", if has_hidden { self.search.as_str() } else { "" })
    }

    /// The response. The tree is JSON already, and large.
    pub(crate) fn response(&self, result: &QueryResult, tree: &StackTree, is_inverted: bool) -> String {
        let [type_name, unit] = [&tree.type_name, &tree.unit].map(|text| Value::from(text.as_str()));
        let mut members = Map::from_iter([("type".to_owned(), type_name), ("unit".to_owned(), unit)]);
        if is_inverted {
            members.insert("inverted".to_owned(), true.into());
        }
        let node = tree.node_at(&self.path);
        let matched = NameSearch::parse(&self.search).map(|search| {
            tree.matched_weight(node, |function| search.matches(&function.name, &function.file, function.start_line))
        });
        let json = match self.width {
            None if !is_inverted => flamegraph::json(tree),
            // It may lack nodes itself.
            None => flamegraph::pruned_json(&tree.pruned(0, 1, usize::MAX), None),
            Some(width) => {
                let total = tree.nodes[node as usize].total_weight;
                let min_weight = total / (NODES_PER_PIXEL_OF_A_ROW * width as i64);
                let pruned = tree.pruned(node, min_weight, NODES_PER_PIXEL * width);
                flamegraph::pruned_json(&pruned, matched.map(|weight| (self.search.as_str(), weight)))
            }
        };
        if let Some(weight) = matched {
            members.insert("matched".to_owned(), weight.into());
        }
        let members = result.with_completeness(members).to_string();
        format!(r#"{},"tree":{json}}}"#, members.trim_end_matches('}'))
    }
}
