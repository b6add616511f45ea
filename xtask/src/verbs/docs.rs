//! `cargo xtask docs`: generates the reference pages from the core's tables, builds the site and rustdoc, and executes every
//! code block of the documents.

use super::live::platforms::table;
use super::release::sources;
use crate::languages::{self, python};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{artifact, book, documents, scratch, workspace};

/// generated reference pages, the site, rustdoc, and the documents' code blocks executed
///
/// The pages configuration.md, profile-types.md, statistics.md and schema.json of docs/reference come from the tables in core, api.md from core/conformance; the table of
/// platforms in docs/start/README.md from the cells of `live platforms`.
/// The site is target/book/index.html. Links and anchors must have a target, and docs/SUMMARY.md lists every page.
/// Code blocks of README.md and docs/ run against the packages for tests; those in Java and Rust are compiled.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct DocsArguments {
    /// fails when a generated page differs, and writes nothing
    #[arg(long)]
    check: bool,
    /// checks links and builds the site, nothing else
    #[arg(long)]
    site: bool,
}

pub fn run(arguments: &DocsArguments) -> StepResult {
    if !arguments.site {
        generated(arguments.check)?;
    }
    documents::check_links()?;
    book::build()?;
    if arguments.site {
        return Ok(());
    }
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
    let program = artifact::for_tests()?.join("spanprof-live");
    for file in ["configuration.md", "profile-types.md", "statistics.md", "api.md", "schema.json"] {
        let page = file.split('.').next().unwrap_or(file);
        let text = ProcessStep::new(format!("generate {page}"), &program).args(["reference", page]).capture()?;
        let path = workspace::root().join("docs/reference").join(file);
        if !check {
            scratch::write(&path, &text)?;
        } else if scratch::read(&path)? != text {
            let message = format!("docs/reference/{file} differs from its source");
            return Err(StepFailure::new("generated pages", message).with_hint("cargo xtask docs"));
        }
    }
    table::generated(check)
}

/// Runs the code blocks of the documents in every language.
pub fn blocks() -> StepResult {
    languages::ALL.iter().try_for_each(|language| language.document_blocks())?;
    ProcessStep::cargo("compile the code blocks in Rust")
        .args(["check", "--quiet", "-p", "spanprof-documents", "--bench", "blocks"])
        .run()?;
    sources::rust()
}
