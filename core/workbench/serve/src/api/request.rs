//! One request of the API: what all endpoints share of the question, the filter and the selection of stacks, and of the answer.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::Value;
use spanprof_answers::selection;
use spanprof_answers::selection::moment::unix_ns;
use spanprof_profile::transform::StackTree;
use spanprof_read::query::{Detail, Filter, TypeSummary};

use super::stack_view::StackView;
use crate::files::window::StoredWindow;
use crate::query::queries::QueryResult;
use crate::state::server_state::ServerState;

/// Rows of a list when the request has no limit.
pub(crate) const DEFAULT_ROWS: usize = 200;

/// A request whose parameters its endpoint accepts.
pub(crate) struct ApiRequest<'r> {
    pub state: &'r ServerState,
    pub path: &'r str,
    parameters: &'r [(String, String)],
    pub filter: Filter,
    pub view: StackView,
}

/// The body of a response.
#[derive(Debug)]
pub(crate) struct ResponseContent {
    pub content_type: &'static str,
    pub bytes: Vec<u8>,
    pub windows_left_out: usize,
}

/// Why a request has no answer; the default status is 400.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub message: String,
}

pub(crate) type ApiResult = Result<ResponseContent, ApiError>;

impl<'r> ApiRequest<'r> {
    pub(crate) fn parse(
        state: &'r ServerState,
        path: &'r str,
        parameters: &'r [(String, String)],
    ) -> Result<Self, ApiError> {
        let filter = selection::of_parameters(parameters, unix_ns())?;
        Ok(ApiRequest { state, path, parameters, filter, view: StackView::parse(parameters)? })
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&'r str> {
        self.parameters.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// As [`ApiRequest::parameter`], without empty values.
    pub(crate) fn non_empty(&self, name: &str) -> Option<&'r str> {
        self.parameter(name).filter(|value| !value.is_empty())
    }

    pub(crate) fn number(&self, name: &str, default: usize) -> Result<usize, String> {
        self.non_empty(name)
            .map_or(Ok(default), |text| text.parse().map_err(|_| format!("`{name}`: expected a number, got `{text}`")))
    }

    /// Number of rows in the response.
    pub(crate) fn limit(&self) -> Result<usize, String> {
        self.number("limit", DEFAULT_ROWS)
    }

    /// The windows that may have samples of the filter, oldest first.
    pub(crate) fn windows(&self) -> Vec<Arc<StoredWindow>> {
        windows(self.state, &self.filter)
    }

    /// The stacks of the samples that pass the filter.
    pub(crate) fn stacks(&self) -> Arc<QueryResult> {
        self.state.store.query(&self.filter, Detail::Stacks)
    }

    pub(crate) fn stack_tree(&self, result: &Arc<QueryResult>, view: &StackView) -> Arc<StackTree> {
        self.state.trees.get(result, self.filter.type_name.as_deref(), view.tree_key(), || {
            let data = view.data(result);
            view.tree(&data, &selection::type_to_show(&data, &self.filter))
        })
    }
}

impl ResponseContent {
    pub(crate) fn json(text: String) -> Self {
        ResponseContent { content_type: "application/json", bytes: text.into_bytes(), windows_left_out: 0 }
    }
}

impl ApiError {
    pub(crate) fn not_found(path: &str) -> Self {
        ApiError { status: StatusCode::NOT_FOUND, message: format!("{path} does not exist") }
    }
}

impl From<Value> for ResponseContent {
    fn from(json: Value) -> Self {
        Self::json(json.to_string())
    }
}

impl From<String> for ApiError {
    fn from(message: String) -> Self {
        ApiError { status: StatusCode::BAD_REQUEST, message }
    }
}

/// The windows that may have samples of the filter, oldest first.
pub(crate) fn windows(state: &ServerState, filter: &Filter) -> Vec<Arc<StoredWindow>> {
    state.store.windows().into_iter().filter(|window| window.may_hold(filter)).collect()
}

/// Summaries of the windows that have the filter's service and type.
pub(crate) fn summaries<'a>(
    windows: &'a [Arc<StoredWindow>],
    filter: &'a Filter,
) -> impl Iterator<Item = &'a TypeSummary> + 'a {
    windows
        .iter()
        .flat_map(|window| &window.services)
        .filter(|service| filter.service.as_ref().is_none_or(|name| *name == service.name))
        .flat_map(|service| &service.types)
        .filter(|summary| filter.type_name.as_ref().is_none_or(|name| *name == summary.type_name))
}

/// Milliseconds, which the numbers of a page represent exactly.
pub(crate) fn ms(nanos: u64) -> u64 {
    nanos / 1_000_000
}
