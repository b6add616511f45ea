//! `/api/function`: one function with its callers and callees, as `spanprof peek` lists them, and its source lines with their
//! weight, as `spanprof list` does. Source files are read below the directories of `--source-path` only.

use std::path::{Component, Path};
use std::sync::Arc;

use serde_json::{json, Map, Value};
use spanprof_answers::{neighbors as neighbor_answer, sources};
use spanprof_profile::code_origin::CodeOrigin;
use spanprof_profile::transform::StackTree;
use spanprof_profile::{FrameType, ProfilesData};
use spanprof_read::query::{self, Filter, FunctionLine, FunctionLines, LabelMatcher, MatchOperator};

use super::request::{ApiRequest, ApiResult};
use crate::files::window::StoredWindow;
use crate::state::settings::Settings;

/// Attribute of the resource with the commit of the program (OpenTelemetry semantic conventions, `vcs` registry).
const COMMIT: &str = "vcs.ref.head.revision";
/// Callers, and callees.
const MAX_NEIGHBORS: usize = 100;
/// Source lines of a function.
const MAX_LINES: usize = 3000;

/// The function that a request asks for.
struct FunctionRequest {
    name: String,
    file: Option<String>,
    /// Where the function starts.
    line: Option<i64>,
}

pub(crate) fn answer(request: &ApiRequest) -> ApiResult {
    let function = FunctionRequest::parse(|name| request.parameter(name))?;
    let result = request.stacks();
    let tree = request.stack_tree(&result, &request.view.as_called());
    let commit = commit(&request.windows(), &request.filter);
    let data = request.view.data(&result);
    let members = function.members(&tree, &data, &request.state.settings, commit.as_deref());
    Ok(result.with_completeness(members).into())
}

/// The commit of the program: the selected one, else that of the newest window.
fn commit(windows: &[Arc<StoredWindow>], filter: &Filter) -> Option<String> {
    let is_selected = |label: &&LabelMatcher| label.key == COMMIT && label.operator == MatchOperator::Equal;
    let selected = filter.labels.iter().find(is_selected).map(|label| label.value.clone());
    let services = windows.iter().rev().flat_map(|window| &window.services);
    let mut services = services.filter(|service| filter.service.as_ref().is_none_or(|name| *name == service.name));
    selected.or_else(|| services.find_map(|service| service.labels.get(COMMIT)?.last().cloned()))
}

impl FunctionRequest {
    fn parse<'p>(parameter: impl Fn(&str) -> Option<&'p str>) -> Result<Self, String> {
        let line = parameter("line").filter(|text| !text.is_empty());
        let line = line.map(|text| match text.parse() {
            Ok(line) => Ok(line),
            Err(_) => Err(format!("`line`: expected the line where the function starts, got `{text}`")),
        });
        Ok(Self {
            name: parameter("name").ok_or("expected `name`: the name of a function, as /api/top lists it")?.to_owned(),
            file: parameter("file").filter(|file| !file.is_empty()).map(str::to_owned),
            line: line.transpose()?.filter(|line| *line > 0),
        })
    }

    fn matches(&self, function: &FunctionLine) -> bool {
        function.function == self.name
            && self.file.as_ref().is_none_or(|file| *file == function.file)
            && self.line.is_none_or(|line| line == function.line)
    }

    /// The members of the response. Of several functions, such as those of one name in several files, the one with most weight.
    /// `commit` is that of the program, if it is known.
    fn members(
        &self,
        tree: &StackTree,
        data: &ProfilesData,
        settings: &Settings,
        commit: Option<&str>,
    ) -> Map<String, Value> {
        let mut all = query::neighbors(tree, |function| self.matches(function));
        let matched = all.len();
        let mut members = Map::new();
        if !all.is_empty() {
            let neighbors = all.swap_remove(0);
            members = neighbor_answer::members(&neighbors, MAX_NEIGHBORS);
            let lines =
                query::function_lines(data, &tree.type_name, |function| *function == neighbors.location).functions;
            let lines = lines.into_iter().next().unwrap_or_default();
            let lines = FunctionLines { location: neighbors.location, ..lines };
            if lines.flat != neighbors.weight.flat {
                members.insert("with_native".to_owned(), lines.flat.into());
            }
            members.insert("source".to_owned(), source(&lines, settings, commit));
            members.insert("caller_count".to_owned(), neighbors.callers.len().into());
            members.insert("callee_count".to_owned(), neighbors.callees.len().into());
        }
        members.extend([
            ("type".to_owned(), tree.type_name.as_str().into()),
            ("unit".to_owned(), tree.unit.as_str().into()),
            ("total".to_owned(), tree.nodes.first().map_or(0, |root| root.total_weight).into()),
            ("matched".to_owned(), matched.into()),
        ]);
        members
    }
}

/// The lines of a function, with the text where its file was found; else the reason.
fn source(lines: &FunctionLines, settings: &Settings, commit: Option<&str>) -> Value {
    let (function, paths) = (&lines.location, &settings.source_paths);
    let file = paths.read(function);
    let text = file.as_ref().map(|file| file.lines.as_slice());
    let shown = sources::shown_lines(lines, text);
    let note = match &file {
        Some(_) if lines.lines.keys().all(|line| *line == 0) => Some("The profile has no line numbers.".to_owned()),
        Some(_) => None,
        None => note_without_file(function, paths.is_empty()),
    };
    let path = file.as_ref().map_or_else(|| paths.trimmed(function), |file| &file.path);
    // A class without its package is not a path.
    let is_path = file.is_some() || function.frame_type != FrameType::Jvm || path.components().count() > 1;
    let template = settings.source_url.as_deref().filter(|_| is_path);
    json!({
        "path": file.as_ref().map(|file| file.path.to_string_lossy()),
        "lines": sources::lines_json(lines, text, shown.into_iter().take(MAX_LINES)),
        "note": note,
        "link": template.and_then(|template| link(template, path, commit)),
    })
}

/// What shows the text of a function whose file was not found.
fn note_without_file(function: &FunctionLine, has_no_directories: bool) -> Option<String> {
    let file = &function.file;
    Some(match function.origin() {
        _ if file.is_empty() => "The profile does not name the file of this function.".to_owned(),
        // Nobody adds the directories of libraries for one click.
        origin if origin != CodeOrigin::Own => return None,
        _ if has_no_directories => format!("`spanprof serve --source-path DIR` shows the text, with the directory of {file}."),
        _ => format!(
            "{file} is not below the directories of --source-path. Add its directory, or remove a prefix with --trim-path."
        ),
    })
}

/// The address of a file, with the placeholder `{line}`; `None` if the template needs an unknown commit.
fn link(template: &str, path: &Path, commit: Option<&str>) -> Option<String> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(percent_encoded(&name.to_string_lossy())),
        _ => None,
    });
    let path = parts.collect::<Vec<_>>().join("/");
    if path.is_empty() || (template.contains("{commit}") && commit.is_none()) {
        return None;
    }
    Some(template.replace("{path}", &path).replace("{commit}", &percent_encoded(commit.unwrap_or_default())))
}

/// A segment of a path (RFC 3986, section 3.3). Other characters, among them braces, are encoded.
fn percent_encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~@+".contains(&byte);
    let encode = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_the_path_and_the_commit_and_keeps_the_placeholder_of_the_line() {
        let template = "https://git.example/shop/blob/{commit}/{path}#L{line}";
        let linked = |path: &str, commit| link(template, Path::new(path), commit);
        assert_eq!(
            linked("/src/a b/{line}.py", Some("1f2e")).as_deref(),
            Some("https://git.example/shop/blob/1f2e/src/a%20b/%7Bline%7D.py#L{line}")
        );
        assert_eq!(
            linked("../../etc/passwd", Some("1/{path}")).as_deref(),
            Some("https://git.example/shop/blob/1%2F%7Bpath%7D/etc/passwd#L{line}")
        );
        assert_eq!((linked("app.py", None), linked("", Some("1"))), (None, None));
        assert_eq!(link("https://x/{path}", Path::new("a"), None).as_deref(), Some("https://x/a"));
    }

    #[test]
    fn a_note_names_the_file_of_own_code_and_no_file_of_a_library() {
        let note = |file: &str, has_no_directories| {
            let function =
                FunctionLine { file: file.to_owned(), frame_type: FrameType::Cpython, ..FunctionLine::default() };
            note_without_file(&function, has_no_directories)
        };
        for has_no_directories in [true, false] {
            assert_eq!(note("/usr/lib/python3.12/site-packages/flask/app.py", has_no_directories), None);
            let note = note("/srv/shop/app.py", has_no_directories).unwrap();
            assert!(note.contains("--source-path") && note.contains("/srv/shop/app.py"), "{note}");
        }
    }

    #[test]
    fn a_request_names_a_function_and_a_line_is_a_number() {
        let parse = |pairs: &[(&str, &str)]| {
            FunctionRequest::parse(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value))
        };
        assert!(parse(&[]).err().unwrap().contains("expected `name`"));
        assert!(parse(&[("name", "f"), ("line", "x")]).err().unwrap().contains("`line`: expected the line"));
        let request = parse(&[("name", "f"), ("file", "a.py"), ("line", "3")]).unwrap();
        let function = |file: &str, line| FunctionLine {
            function: "f".to_owned(),
            file: file.to_owned(),
            line,
            ..FunctionLine::default()
        };
        assert_eq!(
            [function("a.py", 3), function("b.py", 3), function("a.py", 4)].map(|function| request.matches(&function)),
            [true, false, false]
        );
        assert!(parse(&[("name", "f"), ("line", "0")]).unwrap().matches(&function("b.py", 3)));
    }
}
