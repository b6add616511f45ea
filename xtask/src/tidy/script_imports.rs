//! The imports between the modules of the packages for Node.js, Python and Java. Imports inside functions count: what they load
//! must exist all the same. An approximation for formatted code.

use std::collections::BTreeMap;

use super::imports::{Import, SourceImports};
use super::source;

/// The package for Node.js.
const NODE: &str = "bindings-node/lib";
/// The package for Python.
const PYTHON: &str = "bindings-python/python/spanprof";
/// The package for Java.
const JAVA: &str = "bindings-java/src/main/java/io/spanprof";

/// The modules of a package: their texts by path without extension, relative to the package.
type Modules<'a> = BTreeMap<String, (&'a str, &'a str)>;

/// The imports of each package.
pub fn read(files: &[(String, String)]) -> Vec<SourceImports> {
    let node = modules(NODE, &["js", "mjs"], files);
    let python = modules(PYTHON, &["py"], files);
    let java = modules(JAVA, &["java"], files);
    let packages = [
        (NODE, each(&node, |from, text| javascript(from, text, &node))),
        (PYTHON, each(&python, |from, text| python_imports(from, text, &python))),
        (JAVA, each(&java, |from, text| java_imports(from, text, &java))),
    ];
    packages.map(|(directory, imports)| SourceImports { directory: directory.to_owned(), imports }).into()
}

fn modules<'a>(directory: &str, extensions: &[&str], files: &'a [(String, String)]) -> Modules<'a> {
    let module = |(path, text): &'a (String, String)| {
        let name = path.strip_prefix(directory)?.strip_prefix('/')?;
        let (name, extension) = name.rsplit_once('.')?;
        // `index.mjs` is another module than `index.js`.
        let name = if extension == "mjs" { format!("{name}.mjs") } else { name.to_owned() };
        extensions.contains(&extension).then_some((name, (path.as_str(), text.as_str())))
    };
    files.iter().filter_map(module).collect()
}

/// The imports of each module; `read` returns the modules that a text imports, with their lines.
fn each(modules: &Modules<'_>, read: impl Fn(&str, &str) -> Vec<(String, usize)>) -> Vec<Import> {
    let of_module = |(from, (file, text)): (&String, &(&str, &str))| {
        let imports = read(from, text).into_iter().filter(|(to, _)| to != from);
        let import = |(to, line)| Import { from: from.clone(), to, file: (*file).to_owned(), line };
        imports.map(import).collect::<Vec<_>>()
    };
    modules.iter().flat_map(of_module).collect()
}

/// `require('./a')`, `import './a.js'`, `import('./a.js')`.
fn javascript(from: &str, text: &str, modules: &Modules<'_>) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let content = content.trim_start();
        if content.starts_with('*') || content.starts_with("//") {
            continue;
        }
        for (at, _) in content.match_indices("'.") {
            let before = content[..at].trim_end_matches('(');
            let is_import = ["require", "import", "from "].iter().any(|word| before.ends_with(word));
            let Some((path, _)) = content[at + 1..].split_once('\'').filter(|_| is_import) else { continue };
            let path = path.strip_suffix(".js").unwrap_or(path);
            let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
            let target = joined(folder, path);
            found.extend(modules.contains_key(&target).then_some((target, line + 1)));
        }
    }
    found
}

/// A path relative to a folder, without `.` and `..`.
fn joined(folder: &str, path: &str) -> String {
    let mut segments: Vec<&str> = folder.split('/').filter(|segment| !segment.is_empty()).collect();
    for segment in path.split('/') {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    segments.join("/")
}

/// `from . import a`, `from .a import b`, `from spanprof.a import b`, `import spanprof.a`, outside texts of several lines.
fn python_imports(from: &str, text: &str, modules: &Modules<'_>) -> Vec<(String, usize)> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    let mut is_in_text = false;
    let mut lines = text.lines().enumerate();
    while let Some((line, content)) = lines.next() {
        is_in_text ^= content.matches("\"\"\"").count() % 2 == 1;
        if is_in_text {
            continue;
        }
        let mut statement = content.trim().to_owned();
        if !statement.starts_with("from ") && !statement.starts_with("import ") {
            continue;
        }
        while statement.contains('(') && !statement.contains(')') {
            let Some((_, next)) = lines.next() else { break };
            statement.push_str(next.trim());
        }
        let statement = statement.replace(['(', ')'], " ");
        let (package, names) = match statement.strip_prefix("from ").and_then(|rest| rest.split_once(" import ")) {
            Some((package, names)) => (package.trim(), names),
            None => ("", statement.strip_prefix("import ").unwrap_or_default()),
        };
        let Some(package) = python_folder(folder, package) else { continue };
        for name in names.split(',').filter_map(|name| name.split_whitespace().next()) {
            let name = match statement.starts_with("import ") {
                true => name.strip_prefix("spanprof.").unwrap_or("").replace('.', "/"),
                false => name.to_owned(),
            };
            let inside = joined(&package, &name);
            let target = if modules.contains_key(&inside) { inside } else { package.clone() };
            found.extend(modules.contains_key(&target).then_some((target, line + 1)));
        }
    }
    found
}

/// The path of the module or package after `from`; `None` for another package than spanprof.
fn python_folder(folder: &str, package: &str) -> Option<String> {
    if let Some(rest) = package.strip_prefix("spanprof").filter(|rest| rest.is_empty() || rest.starts_with('.')) {
        return Some(rest.trim_start_matches('.').replace('.', "/"));
    }
    if package.is_empty() {
        return Some(String::new());
    }
    let levels = package.len() - package.trim_start_matches('.').len();
    let mut segments: Vec<&str> = folder.split('/').filter(|segment| !segment.is_empty()).collect();
    segments.truncate(segments.len().checked_sub(levels.checked_sub(1)?)?);
    segments.extend(package[levels..].split('.').filter(|segment| !segment.is_empty()));
    Some(segments.join("/"))
}

/// Names of classes: those of the same package, those that an import names, and those of qualified names.
fn java_imports(from: &str, text: &str, modules: &Modules<'_>) -> Vec<(String, usize)> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    for (line, content) in source::rust(text).iter().enumerate() {
        let code = content.code.trim();
        let is_import = code.starts_with("import ");
        for (at, _) in code.match_indices("io.spanprof.") {
            let name = code[at + "io.spanprof.".len()..].split(|c: char| !c.is_alphanumeric() && c != '.');
            let segments: Vec<&str> = name.take(1).flat_map(|name| name.split('.')).collect();
            let targets = (1..=segments.len()).map(|length| segments[..length].join("/"));
            found.extend(targets.filter(|target| modules.contains_key(target)).map(|target| (target, line + 1)));
        }
        let names = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|_| !is_import);
        for name in names.filter(|name| name.starts_with(char::is_uppercase)) {
            let target = joined(folder, name);
            found.extend(modules.contains_key(&target).then_some((target, line + 1)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of the module `a` in a package whose modules are `a`, `b`, `c/d` and `c/e`.
    fn imports(directory: &str, extension: &str, text: &str) -> Vec<String> {
        let file = |name: &str| (format!("{directory}/{name}.{extension}"), String::new());
        let mut files: Vec<_> = ["b", "c/d", "c/e"].into_iter().map(file).collect();
        files.push((format!("{directory}/a.{extension}"), text.to_owned()));
        let sources = read(&files);
        let imports = sources.iter().flat_map(|source| &source.imports);
        imports.map(|import| format!("{}:{}", import.to, import.line)).collect()
    }

    #[test]
    fn imports_of_javascript_are_read_in_functions_too_and_not_in_comments() {
        let text = "const b = require('./b')\n// require('./c/d')\n * @type {import('./c/d')}\nfunction f() {\n  return import('./c/e.js')\n}\nconst fs = require('node:fs')";
        assert_eq!(imports(NODE, "js", text), ["b:1", "c/e:5"]);
    }

    #[test]
    fn imports_of_python_are_read_with_their_continuation_lines() {
        let text = "import os\nC = \"\"\"\nimport spanprof.c.e\n\"\"\"\nfrom . import (\n    b,\n    other,\n)\nfrom .c.d import D\ndef f():\n    from spanprof.c import e\n    import spanprof.b";
        assert_eq!(imports(PYTHON, "py", text), ["b:5", "c/d:9", "c/e:11", "b:12"]);
    }

    #[test]
    fn classes_of_java_are_found_by_name_in_the_package_and_by_import() {
        let files = |directory: &str| ["A", "B", "c/D", "c/E"].map(|name| format!("{directory}/{name}.java"));
        let text = "package io.spanprof;\nimport static io.spanprof.c.D.d;\nclass A {\n  // B\n  io.spanprof.c.E e = new B(\"E\");\n}";
        let texts = [text, "", "", "class E { D d; }"];
        let files: Vec<_> = files(JAVA).into_iter().zip(texts.map(str::to_owned)).collect();
        let sources = read(&files);
        let imports = sources.iter().flat_map(|source| &source.imports);
        let imports: Vec<_> = imports.map(|import| format!("{}>{}", import.from, import.to)).collect();
        assert_eq!(imports, ["A>c/D", "A>c/E", "A>B", "c/E>c/D"]);
    }
}
