//! `cargo xtask docs`: generates the reference pages from the core's tables, runs rustdoc, and executes every code block of
//! the documents.

use std::path::Path;
use std::time::Duration;

use crate::languages::{self, python, FirstProgram};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{documents, scratch, workspace};

/// generated reference pages, rustdoc, and the documents' code blocks executed
///
/// docs/configuration.md, docs/schema.json and docs/statistics.md come from the tables in core, docs/surface.md from core/conformance.
/// Python blocks of README.md and docs/*.md run against the wheel; relative links must have a target.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct DocsArguments {
    /// fails when a generated page differs, and writes nothing
    #[arg(long)]
    check: bool,
}

pub fn run(given: &DocsArguments) -> StepResult {
    generated(given.check)?;
    links()?;
    rustdoc()?;
    blocks()
}

/// Builds the pages of `cargo doc`; a warning is a failure.
pub fn rustdoc() -> StepResult {
    ProcessStep::cargo("rustdoc")
        .args(["doc", "--workspace", "--no-deps", "--quiet"])
        // The pages are for contributors: a module may link to private items.
        .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links")
        .env("PYO3_PYTHON", &python::runtimes::preferred()?.program)
        .run()
}

/// Writes, or compares, the pages generated from the core's tables.
pub fn generated(check: bool) -> StepResult {
    for file in ["configuration.md", "statistics.md", "surface.md", "schema.json"] {
        let page = file.split('.').next().unwrap_or(file);
        let text = ProcessStep::cargo(format!("generate {page}"))
            .args(["run", "--quiet", "-p", "spanprof-live", "--", "reference", page])
            .capture()?;
        let path = workspace::root().join("docs").join(file);
        if !check {
            scratch::write(&path, &text)?;
        } else if scratch::read(&path)? != text {
            let message = format!("docs/{file} differs from its source");
            return Err(StepFailure::new("generated pages", message).with_hint("cargo xtask docs"));
        }
    }
    Ok(())
}

/// Checks that relative links of every document have a target.
pub fn links() -> StepResult {
    println!("── links");
    let root = workspace::root();
    let mut broken = Vec::new();
    for path in documents::paths()? {
        let directory = root.join(&path).parent().map(Path::to_path_buf).unwrap_or_default();
        for link in links_of(&scratch::read(&root.join(&path))?) {
            if !directory.join(&link).exists() {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    match broken.is_empty() {
        true => Ok(()),
        false => Err(StepFailure::new("links", format!("without a target:\n  {}", broken.join("\n  ")))),
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

/// Runs the code blocks of the documents in every language.
pub fn blocks() -> StepResult {
    languages::ALL.iter().try_for_each(|language| language.document_blocks())
}

/// Runs the README's first program of each language; each must write a flame graph.
pub fn first_results() -> StepResult {
    let readme = scratch::read(&workspace::root().join("README.md"))?;
    let directory = scratch::empty("docs-first-results")?;
    let flame_graph = directory.join("flame.html");
    let programs: Vec<FirstProgram> = languages::ALL
        .iter()
        .filter_map(|language| language.first_program(&directory).transpose())
        .collect::<StepResult<_>>()?;
    for FirstProgram { tag, file: name, step } in programs {
        let file = directory.join(name);
        scratch::write(&file, &documents::blocks_of(&readme, tag))?;
        step.arg(&file).in_directory(&directory).time_limit(Duration::from_secs(120)).run()?;
        let page = scratch::read(&flame_graph)?;
        if !page.contains("price") {
            return Err(StepFailure::new(
                "first result",
                format!("{name} of README.md wrote a flame graph without `price`"),
            ));
        }
        std::fs::remove_file(&flame_graph).map_err(|error| StepFailure::new("first result", error.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_links_are_found_without_their_anchors() {
        assert_eq!(links_of("[a](docs/a.md#top) [b](https://x.y) [c](b.md) [d](#here)"), ["docs/a.md", "b.md"]);
    }
}
