//! `/api/function`: one function with its callers and callees, as `spanprof peek` lists them, and its source lines with their
//! weight, as `spanprof list` does. Source files are read below the directories of `--source-path` only.

use std::path::{Component, Path};

use serde_json::{json, Map, Value};
use spanprof_profile::code_origin::CodeOrigin;
use spanprof_profile::transform::StackTree;
use spanprof_profile::{FrameType, ProfilesData};
use spanprof_read::query::{self, FunctionLine, FunctionLines, Neighbors};

use crate::answers::{self, sources};
use crate::serve::state::settings::Settings;

/// Parameters beside those of the filter.
pub(crate) const PARAMETERS: [&str; 4] = ["file", "line", "name", "native"];
/// Attribute of the resource with the commit of the program (OpenTelemetry semantic conventions, `vcs` registry).
pub(crate) const COMMIT: &str = "vcs.ref.head.revision";
/// Callers, and callees.
const MAX_NEIGHBORS: usize = 100;
/// Source lines of a function.
const MAX_LINES: usize = 3000;

/// The function that a request asks for.
pub(crate) struct FunctionRequest {
    name: String,
    file: Option<String>,
    /// Where the function starts.
    line: Option<i64>,
}

impl FunctionRequest {
    pub(crate) fn parse(parameter: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let line = parameter("line").filter(|text| !text.is_empty());
        let line = line.map(|text| match text.parse() {
            Ok(line) => Ok(line),
            Err(_) => Err(format!("`line`: expected the line where the function starts, got `{text}`")),
        });
        Ok(Self {
            name: parameter("name").ok_or("expected `name`: the name of a function, as /api/top lists it")?,
            file: parameter("file").filter(|file| !file.is_empty()),
            line: line.transpose()?.filter(|line| *line > 0),
        })
    }

    fn matches(&self, at: &FunctionLine) -> bool {
        at.function == self.name
            && self.file.as_ref().is_none_or(|file| *file == at.file)
            && self.line.is_none_or(|line| line == at.line)
    }

    /// The members of the response. Of several functions, such as those of one name in several files, the one with most weight.
    /// `commit` is that of the program, if it is known.
    pub(crate) fn members(
        &self,
        tree: &StackTree,
        data: &ProfilesData,
        settings: &Settings,
        commit: Option<&str>,
    ) -> Map<String, Value> {
        let mut all = query::neighbors(tree, |at| self.matches(at));
        let matched = all.len();
        let found = if all.is_empty() { None } else { Some(all.swap_remove(0)) };
        let mut members =
            found.as_ref().map_or_else(Map::new, |found| answers::neighbors::members(found, MAX_NEIGHBORS));
        if let Some(Neighbors { at, callers, callees, .. }) = &found {
            let mut lines = query::function_lines(data, &tree.type_name, |other| other == at).functions;
            let lines = if lines.is_empty() { FunctionLines::default() } else { lines.swap_remove(0) };
            members.insert("source".to_owned(), source(&FunctionLines { at: at.clone(), ..lines }, settings, commit));
            members.insert("caller_count".to_owned(), callers.len().into());
            members.insert("callee_count".to_owned(), callees.len().into());
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
fn source(function: &FunctionLines, settings: &Settings, commit: Option<&str>) -> Value {
    let (at, paths) = (&function.at, &settings.source_paths);
    let file = paths.read(at);
    let text = file.as_ref().map(|file| file.lines.as_slice());
    let lines = sources::shown_lines(function, text);
    let note = match &file {
        Some(_) if function.lines.keys().all(|line| *line == 0) => Some("The profile has no line numbers.".to_owned()),
        Some(_) => None,
        None => note_without_file(at, paths.is_empty()),
    };
    let path = file.as_ref().map_or_else(|| paths.trimmed(at), |file| &file.path);
    // A class without its package is not a path.
    let is_path = file.is_some() || at.frame_type != FrameType::Jvm || path.components().count() > 1;
    let template = settings.source_url.as_deref().filter(|_| is_path);
    json!({
        "path": file.as_ref().map(|file| file.path.to_string_lossy()),
        "lines": sources::lines_json(function, text, lines.into_iter().take(MAX_LINES)),
        "note": note,
        "link": template.and_then(|template| link(template, path, commit)),
    })
}

/// What shows the text of a function whose file was not found.
fn note_without_file(at: &FunctionLine, has_no_directories: bool) -> Option<String> {
    let file = &at.file;
    Some(match at.origin() {
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
        let of = |path: &str, commit| link(template, Path::new(path), commit);
        assert_eq!(
            of("/src/a b/{line}.py", Some("1f2e")).as_deref(),
            Some("https://git.example/shop/blob/1f2e/src/a%20b/%7Bline%7D.py#L{line}")
        );
        assert_eq!(
            of("../../etc/passwd", Some("1/{path}")).as_deref(),
            Some("https://git.example/shop/blob/1%2F%7Bpath%7D/etc/passwd#L{line}")
        );
        assert_eq!((of("app.py", None), of("", Some("1"))), (None, None));
        assert_eq!(link("https://x/{path}", Path::new("a"), None).as_deref(), Some("https://x/a"));
    }

    #[test]
    fn a_note_names_the_file_of_own_code_and_no_file_of_a_library() {
        let note = |file: &str, has_no_directories| {
            let at = FunctionLine { file: file.to_owned(), frame_type: FrameType::Cpython, ..FunctionLine::default() };
            note_without_file(&at, has_no_directories)
        };
        for has_no_directories in [true, false] {
            assert_eq!(note("/usr/lib/python3.12/site-packages/flask/app.py", has_no_directories), None);
            let own = note("/srv/shop/app.py", has_no_directories).unwrap();
            assert!(own.contains("--source-path") && own.contains("/srv/shop/app.py"), "{own}");
        }
    }

    #[test]
    fn a_request_names_a_function_and_a_line_is_a_number() {
        let parse = |pairs: &[(&str, &str)]| {
            FunctionRequest::parse(|name| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(parse(&[]).err().unwrap().contains("expected `name`"));
        assert!(parse(&[("name", "f"), ("line", "x")]).err().unwrap().contains("`line`: expected the line"));
        let request = parse(&[("name", "f"), ("file", "a.py"), ("line", "3")]).unwrap();
        let at = |file: &str, line| FunctionLine {
            function: "f".to_owned(),
            file: file.to_owned(),
            line,
            ..FunctionLine::default()
        };
        assert_eq!([at("a.py", 3), at("b.py", 3), at("a.py", 4)].map(|at| request.matches(&at)), [true, false, false]);
        assert!(parse(&[("name", "f"), ("line", "0")]).unwrap().matches(&at("b.py", 3)));
    }
}
