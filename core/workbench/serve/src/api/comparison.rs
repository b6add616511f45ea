//! `/api/diff`: compares two selections of the store, as `spanprof diff` does. The parameters of the filter select the comparison.
//! The baseline has the same filter, except for the labels of `baseline` and the times `baseline_from` and `baseline_to`.

use spanprof_answers::diff::{self, DiffReport};
use spanprof_answers::selection;
use spanprof_answers::selection::moment::{self, unix_ns};
use spanprof_profile::{transform, Profile};
use spanprof_read::query::{self, Compared, Detail, Filter, Granularity, WindowSums};

use super::request::{ApiRequest, ApiResult, ResponseContent};
use super::stack_view::StackView;
use crate::query::left_out::LeftOut;
use crate::state::server_state::ServerState;

/// Windows whose states are merged at once.
const MERGE_BATCH: usize = 24;

/// One side as read.
struct StoredSide {
    windows: WindowSums,
    left_out: LeftOut,
}

pub(crate) fn answer(request: &ApiRequest) -> ApiResult {
    let ApiRequest { state, filter: comparison, view, .. } = request;
    let (baseline, limit) = (baseline_filter(request)?, request.limit()?);
    let normalize = matches!(request.parameter("normalize"), Some("1" | "true"));
    let sides = [&baseline, comparison].map(|filter| read(state, filter, view));
    let type_name = type_to_show(comparison, &sides);
    let windows = sides.each_ref().map(|side| &side.windows);
    let table = query::diff(windows, &type_name, normalize);
    let tree = query::diff_tree(windows, &table, normalize);
    let mut members = diff::members(&DiffReport::new(&table, &tree, normalize, None, true, limit));
    sides[0].left_out.and(sides[1].left_out).add_to(&mut members);
    let folded = query::folded_diff_tree(windows, &table, &tree, normalize);
    let text = diff::with_trees(&members, &tree, &folded).map_err(|error| error.to_string())?;
    Ok(ResponseContent::json(text))
}

/// The type of the filter, else the preferred one of the comparison, or of the baseline if the comparison has no samples.
fn type_to_show(comparison: &Filter, sides: &[StoredSide; 2]) -> String {
    if let Some(name) = &comparison.type_name {
        return name.clone();
    }
    let with_samples = |side: &StoredSide| -> Vec<String> {
        let types = side.windows.types().filter(|(_, has_samples)| *has_samples);
        types.map(|(name, _)| name.to_owned()).collect()
    };
    let mut names = with_samples(&sides[1]);
    if names.is_empty() {
        names = with_samples(&sides[0]);
    }
    if names.is_empty() {
        names = sides[0].windows.types().map(|(name, _)| name.to_owned()).collect();
    }
    selection::preferred_type(names.iter().map(String::as_str))
}

fn baseline_filter(request: &ApiRequest) -> Result<Filter, String> {
    let mut filter = request.filter.clone();
    if let Some(selector) = request.parameter("baseline").filter(|text| !text.trim().is_empty()) {
        let mut selected = Filter::default();
        selection::narrow(&mut selected, selector)?;
        // The other version replaces that of the comparison.
        filter.labels.retain(|label| selected.labels.iter().all(|other| other.key != label.key));
        filter.labels.append(&mut selected.labels);
        filter.service = selected.service.or(filter.service);
    }
    let now = unix_ns();
    for (name, end) in [("baseline_from", &mut filter.from_unix_nano), ("baseline_to", &mut filter.to_unix_nano)] {
        if let Some(text) = request.non_empty(name) {
            let time = moment::parse(text, now);
            *end = Some(time.ok_or_else(|| format!("`{name}`: expected {}, got `{text}`", moment::FORMS))?);
        }
    }
    Ok(filter)
}

fn read(state: &ServerState, filter: &Filter, view: &StackView) -> StoredSide {
    let mut windows = WindowSums::with_paths(Granularity::Function, Compared::Flat).and_folded_paths();
    let mut states = Vec::new();
    let left_out = state.store.for_each_part(filter, |mut part| {
        view.selection().filter(&mut part);
        windows.add(&part);
        part.resources.iter_mut().for_each(|resource| resource.profiles.retain(Profile::is_gauge));
        part.resources.retain(|resource| !resource.profiles.is_empty());
        if part.resources.is_empty() {
            return;
        }
        Detail::Stacks.reduce(&mut part);
        states.push(part);
        if states.len() == MERGE_BATCH {
            states = vec![transform::merge(&states)];
        }
    });
    windows.add_state(&transform::merge(&states));
    StoredSide { windows, left_out }
}
