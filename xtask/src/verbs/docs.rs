//! `cargo xtask docs`: the reference pages from the core's tables, rustdoc, and every code block of the documents executed.

use std::path::Path;
use std::time::Duration;

use super::{jar, node_tests, wheel, Verb};
use crate::arguments::{Arguments, Known};
use crate::step::{Failure, Outcome, Step};
use crate::venv::Venv;
use crate::{javas, nodes, pythons, scratch, workspace};

pub const VERB: Verb = Verb {
    name: "docs",
    usage: "docs [--check]",
    about: "generated reference pages, rustdoc, and the documents' code blocks executed\n\n\
        docs/configuration.md and docs/statistics.md come from the tables in core. Blocks marked ```python in README.md and\n\
        docs/*.md run against the wheel; relative links must lead somewhere. --check: fails when a generated page differs\n\
        from what lies there, and writes nothing.",
    options: &[Known::Switch("check")],
    run,
};

fn run(given: &Arguments) -> Outcome {
    generated(given.has("check"))?;
    links()?;
    Step::cargo("rustdoc")
        .args(["doc", "--workspace", "--no-deps", "--quiet"])
        // The pages are for those who work here: a module may point at what its users cannot see.
        .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links")
        .env("PYO3_PYTHON", &pythons::preferred()?.program)
        .run()?;
    blocks()
}

/// Writes, or compares, the pages that the core's tables make.
pub fn generated(check: bool) -> Outcome {
    for page in ["configuration", "statistics"] {
        let text = Step::cargo(format!("generate {page}"))
            .args(["run", "--quiet", "-p", "spanprof-live", "--", "reference", page])
            .capture()?;
        let path = workspace::root().join("docs").join(format!("{page}.md"));
        if !check {
            scratch::write(&path, &text)?;
        } else if scratch::read(&path)? != text {
            let message = format!("docs/{page}.md differs from the core's table");
            return Err(Failure::new("generated pages", message).with_way_out("cargo xtask docs"));
        }
    }
    Ok(())
}

fn documents() -> Outcome<Vec<String>> {
    Ok(workspace::files()?.into_iter().filter(|path| path.ends_with(".md")).collect())
}

/// Relative links of every document lead to a file.
pub fn links() -> Outcome {
    println!("── links");
    let root = workspace::root();
    let mut broken = Vec::new();
    for path in documents()? {
        let folder = root.join(&path).parent().map(Path::to_path_buf).unwrap_or_default();
        for link in links_of(&scratch::read(&root.join(&path))?) {
            if !folder.join(&link).exists() {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    match broken.is_empty() {
        true => Ok(()),
        false => Err(Failure::new("links", format!("lead nowhere:\n  {}", broken.join("\n  ")))),
    }
}

fn links_of(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for part in text.split("](").skip(1) {
        let link = part.split([')', '#', ' ']).next().unwrap_or_default();
        if !link.is_empty() && !link.contains("://") && !link.starts_with("mailto:") {
            links.push(link.to_owned());
        }
    }
    links
}

/// Runs the Python blocks of each document that has any, in one program per document.
pub fn blocks() -> Outcome {
    let python = pythons::preferred()?;
    // The demo's environment: the documents use what its service uses.
    let packages = ["-r", "examples/python-fastapi/requirements.txt"].map(str::to_owned);
    let venv = Venv::with("demo", &python, &packages)?;
    venv.install_wheel(&wheel::build_for_tests()?)?;
    let folder = scratch::empty("docs-blocks")?;
    let mut count = 0;
    for path in documents()?
        .iter()
        .filter(|path| *path == "README.md" || path.starts_with("docs/") || path.starts_with("bindings-python/"))
    {
        let program = blocks_of(&scratch::read(&workspace::root().join(path))?, "python");
        if program.is_empty() {
            continue;
        }
        let file = folder.join(format!("{}.py", path.replace(['/', '.'], "_")));
        scratch::write(&file, &program)?;
        Step::new(format!("code blocks of {path}"), venv.python())
            .arg(&file)
            .env("SPANPROF_STOP_TIMEOUT", "0.2")
            .inside(&folder)
            .within(Duration::from_secs(60))
            .run()?;
        count += 1;
    }
    match count {
        0 => Err(Failure::new("code blocks", "no document has one")),
        _ => Ok(()),
    }
}

/// Runs the README's first program of each language as a newcomer would; each must leave a flame graph.
pub fn first_results() -> Outcome {
    let readme = scratch::read(&workspace::root().join("README.md"))?;
    let folder = scratch::empty("docs-first-results")?;
    let failed = |error: std::io::Error| Failure::new("first result", error.to_string());
    let modules = folder.join("node_modules");
    std::fs::create_dir(&modules).map_err(failed)?;
    std::os::unix::fs::symlink(node_tests::prepared()?, modules.join("spanprof")).map_err(failed)?;
    let jar = jar::for_tests()?;
    let java = javas::all()?[0].home.join("bin/java");
    let node = nodes::preferred()?;
    let programs = [
        ("js", "checkout.js", Step::new("the README in Node.js", &node.program)),
        ("java", "Checkout.java", Step::new("the README in Java", java).arg("-cp").arg(&jar)),
    ];
    for (language, name, step) in programs {
        let flame_graph = folder.join("flame.html");
        let file = folder.join(name);
        scratch::write(&file, &blocks_of(&readme, language))?;
        step.arg(&file).inside(&folder).within(Duration::from_secs(120)).run()?;
        let shown = scratch::read(&flame_graph)?;
        if !shown.contains("price") {
            return Err(Failure::new(
                "first result",
                format!("{name} of README.md left a flame graph without `price`"),
            ));
        }
        std::fs::remove_file(&flame_graph).map_err(failed)?;
    }
    Ok(())
}

/// The blocks of a document in one language, one after the other.
fn blocks_of(text: &str, language: &str) -> String {
    let opening = format!("```{language}");
    let mut program = String::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line.trim_end()) {
            (false, line) if line == opening => inside = true,
            (true, "```") => inside = false,
            (true, _) => {
                program.push_str(line);
                program.push('\n');
            }
            _ => {}
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_one_language_are_one_program() {
        let text = "a\n```sh\npip install x\n```\n```python\nimport x\n```\ntext\n```python\nx.y()\n```\n";
        assert_eq!(blocks_of(text, "python"), "import x\nx.y()\n");
    }

    #[test]
    fn relative_links_are_found_without_their_anchors() {
        assert_eq!(links_of("[a](docs/a.md#top) [b](https://x.y) [c](b.md) [d](#here)"), ["docs/a.md", "b.md"]);
    }
}
