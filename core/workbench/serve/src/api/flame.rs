//! `/api/flamegraph`: the call tree, whole or as far as it is visible at a width.

use std::sync::Arc;

use serde_json::{Map, Value};
use spanprof_profile::code_origin::CodeOrigin;
use spanprof_profile::transform::{FunctionKey, StackTree};
use spanprof_read::query::Detail;
use spanprof_view::flamegraph;

use super::name_search::NameSearch;
use super::request::{ApiRequest, ApiResult, ResponseContent};
use crate::query::label_groups;
use crate::query::queries::QueryResult;

/// A node is at least a quarter of a pixel wide. The renderer draws nodes from 0.35 pixels on.
const NODES_PER_PIXEL_OF_A_ROW: i64 = 4;
/// The heaviest nodes of all rows, about half a megabyte at 1,500 pixels.
const NODES_PER_PIXEL: usize = 16;
/// Wider canvases do not exist.
const MAX_WIDTH: usize = 20_000;

/// The part of the tree that a request asks for.
struct FlameRequest {
    /// Width of the canvas in CSS pixels; `None` for the whole tree.
    width: Option<usize>,
    /// Keys of the functions from the root to the zoomed node.
    path: Vec<u32>,
    search: String,
    /// Whether libraries and the runtime are folded.
    is_folded: bool,
}

pub(crate) fn answer(request: &ApiRequest) -> ApiResult {
    let ApiRequest { state, filter, view, .. } = request;
    let part = FlameRequest::parse(request)?;
    let result = match view.group() {
        None => request.stacks(),
        Some(key) => state.store.query(filter, Detail::OneLabel(key.to_owned())),
    };
    let whole = || request.stack_tree(&result, view);
    let tree = if part.is_folded {
        let key = view.tree_key().to_owned() + &part.folding_key(whole);
        state.trees.get(&result, filter.type_name.as_deref(), &key, || {
            let whole = whole();
            let folded = whole.folded(part.unfolded());
            if view.group().is_some() {
                label_groups::in_order_of(&whole, folded)
            } else {
                folded
            }
        })
    } else {
        whole()
    };
    Ok(ResponseContent::json(part.response(&result, &tree, view.is_inverted())))
}

impl FlameRequest {
    fn parse(request: &ApiRequest) -> Result<Self, String> {
        let width = request.non_empty("width").map(|text| match text.parse() {
            Ok(width) if width > 0 => Ok(usize::min(width, MAX_WIDTH)),
            _ => Err(format!("`width`: expected a number of pixels, got `{text}`")),
        });
        let path = request.non_empty("path").map(|text| {
            let keys = text.split('.').map(|key| u32::from_str_radix(key, 16));
            keys.collect::<Result<Vec<u32>, _>>()
                .map_err(|_| format!("`path`: expected keys such as 1a2b3c4d.00c0ffee, got `{text:.100}`"))
        });
        Ok(Self {
            width: width.transpose()?,
            path: path.transpose()?.unwrap_or_default(),
            search: request.parameter("search").unwrap_or_default().trim().to_owned(),
            is_folded: match request.non_empty("fold") {
                None => false,
                Some("libraries") => true,
                Some(other) => return Err(format!("`fold`: expected libraries, got `{other}`")),
            },
        })
    }

    /// The functions that are not folded: a search would not find a match within a folded frame.
    fn unfolded(&self) -> impl Fn(&FunctionKey) -> bool {
        let search = NameSearch::parse(&self.search);
        move |function: &FunctionKey| {
            search.as_ref().is_some_and(|search| search.matches(&function.name, &function.file, function.start_line))
        }
    }

    /// The identity of the folding of `functions`.
    fn folding_key(&self, functions: impl FnOnce() -> Arc<StackTree>) -> String {
        let is_match = self.unfolded();
        let is_hidden = |function: &FunctionKey| function.origin() != CodeOrigin::Own && is_match(function);
        let has_hidden = !self.search.is_empty() && functions().functions.iter().skip(1).any(is_hidden);
        format!("fold={}\n", if has_hidden { self.search.as_str() } else { "" })
    }

    /// The response. The tree is JSON already, and large.
    fn response(&self, result: &QueryResult, tree: &StackTree, is_inverted: bool) -> String {
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
