//! `/api/diff`: compares two selections of the store, as `spanprof diff` does. The parameters of the filter select the comparison.
//! The baseline has the same filter, except for the labels of `baseline` and the times `baseline_from` and `baseline_to`.

use spanprof_profile::{transform, ProfilesData};
use spanprof_read::query::{self, Compared, DiffSide, Filter, Granularity, WindowSums};

use super::stack_view::StackView;
use super::state::ServerState;
use crate::answers::diff::{self, DiffReport};
use crate::detail::Detail;
use crate::moment::{self, unix_ns};
use crate::selection;

/// Parameters beside those of the filter.
pub(super) const PARAMETERS: [&str; 5] = ["baseline", "baseline_from", "baseline_to", "normalize", "limit"];
/// Windows merged at once.
const MERGE_BATCH: usize = 24;

/// One side as read.
#[derive(Default)]
struct StoredSide {
    data: ProfilesData,
    windows: WindowSums,
    left_out: usize,
}

/// The response for a filter of the comparison; an error if a parameter is invalid.
pub(super) fn json(
    state: &ServerState,
    comparison: &Filter,
    view: &StackView,
    parameter: impl Fn(&str) -> Option<String>,
    limit: usize,
) -> Result<String, String> {
    let baseline = baseline_filter(comparison, &parameter)?;
    let normalize = matches!(parameter("normalize").as_deref(), Some("1" | "true"));
    let sides = [&baseline, comparison].map(|filter| read(state, filter, view));
    let type_name = match sides[1].data.sample_count() {
        0 => selection::type_to_show(&sides[0].data, &baseline),
        _ => selection::type_to_show(&sides[1].data, comparison),
    };
    let [before, after] = sides.each_ref().map(|side| DiffSide { data: &side.data, windows: &side.windows });
    let table = query::diff(before, after, &type_name, Granularity::Function, normalize);
    let tree = query::diff_tree(before, after, &type_name, normalize);
    let mut members = diff::members(&DiffReport::new(&table, &tree, normalize, None, true, limit));
    members.insert("windows_left_out".to_owned(), sides.iter().map(|side| side.left_out).sum::<usize>().into());
    let folded = query::folded_diff_tree(before, after, &type_name, normalize);
    diff::with_trees(&members, &tree, &folded).map_err(|error| error.to_string())
}

fn baseline_filter(comparison: &Filter, parameter: impl Fn(&str) -> Option<String>) -> Result<Filter, String> {
    let mut filter = comparison.clone();
    if let Some(selector) = parameter("baseline").filter(|text| !text.trim().is_empty()) {
        let mut own = Filter::default();
        selection::narrow(&mut own, &selector)?;
        // The other version replaces that of the comparison.
        filter.labels.retain(|label| own.labels.iter().all(|other| other.key != label.key));
        filter.labels.append(&mut own.labels);
        filter.service = own.service.or(filter.service);
    }
    let now = unix_ns();
    for (name, end) in [("baseline_from", &mut filter.from_unix_nano), ("baseline_to", &mut filter.to_unix_nano)] {
        if let Some(text) = parameter(name).filter(|text| !text.is_empty()) {
            let time = moment::parse(&text, now);
            *end = Some(time.ok_or_else(|| format!("`{name}`: expected {}, got `{text}`", moment::FORMS))?);
        }
    }
    Ok(filter)
}

fn read(state: &ServerState, filter: &Filter, view: &StackView) -> StoredSide {
    let windows = WindowSums::with_paths(Granularity::Function, Compared::Flat).and_folded_paths();
    let mut side = StoredSide { windows, ..StoredSide::default() };
    let mut batch = Vec::new();
    side.left_out = state.store.for_each_part(filter, |mut part| {
        view.selection().filter(&mut part);
        side.windows.add(&part);
        Detail::Stacks.reduce(&mut part);
        batch.push(part);
        if batch.len() == MERGE_BATCH {
            side.data = transform::merge(std::iter::once(&side.data).chain(&batch));
            batch.clear();
        }
    });
    side.data = transform::merge(std::iter::once(&side.data).chain(&batch));
    side.windows.add_state(&side.data);
    side
}
