//! `/api/profile`: the samples in a file format.

use spanprof_answers::selection;
use spanprof_profile::encode::{folded, otlp, pprof};
use spanprof_profile::{transform, ProfilesData};
use spanprof_read::query::Detail;
use spanprof_view::page;

use super::request::{ApiRequest, ApiResult, ResponseContent};

/// Windows of which an exported page has the labels: an hour. They are read one by one, and sums have no labels.
const LABELED_WINDOWS: usize = 360;

pub(crate) fn answer(request: &ApiRequest) -> ApiResult {
    let filter = &request.filter;
    let format = request.parameter("format").unwrap_or("otlp");
    let detail = match (request.parameter("detail"), format) {
        (None, "flamegraph") if request.windows().len() <= LABELED_WINDOWS => Detail::Labels,
        (Some("stacks"), _) | (None, "folded" | "flamegraph") => Detail::Stacks,
        _ => Detail::Everything,
    };
    let result = request.state.store.query(filter, detail);
    let type_name = || selection::type_to_show(&result.data, filter);
    let (content_type, bytes) = match format {
        "otlp" => {
            let data = transform::separate_exact_values(ProfilesData::clone(&result.data));
            ("application/x-protobuf", otlp::encode(&data, otlp::Revision::One))
        }
        "pprof" => ("application/octet-stream", pprof::encode(&result.data)),
        "folded" => {
            let tree = transform::tree(&result.data, &type_name());
            ("text/plain; charset=utf-8", folded::encode(&tree).into_bytes())
        }
        "flamegraph" => {
            let title = filter.service.as_deref().unwrap_or("all services");
            ("text/html; charset=utf-8", page::html(&result.data, &type_name(), title).into_bytes())
        }
        other => return Err(format!("`format`: expected otlp, pprof, folded or flamegraph, got `{other}`").into()),
    };
    Ok(ResponseContent { content_type, bytes, windows_left_out: result.left_out.windows })
}
