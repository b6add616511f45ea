//! The documents' blocks in JavaScript and TypeScript: TypeScript checks all of them against the package's declarations, which finds
//! misspelled settings too. Blocks that are no files run, in one program per document.

use std::path::Path;
use std::time::Duration;

use super::{link_package, runtimes};
use crate::code_blocks::code_blocks;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{artifact, documents, scratch, workspace};

/// The program of a document, in a directory with the files that the document shows.
const PROGRAM: &str = "program.js";
/// Packages for the tests of `bindings-node` that programs import.
const PACKAGES: [&str; 3] = ["express", "fastify", "@types"];

/// `package` is the one for tests.
pub fn run_blocks(package: &Path) -> StepResult {
    let directory = scratch::empty("docs-blocks-node")?;
    link_package(package, &directory)?;
    for name in PACKAGES {
        let linked = std::os::unix::fs::symlink(
            package.join("node_modules").join(name),
            directory.join("node_modules").join(name),
        );
        linked.map_err(|error| StepFailure::new("link a package", format!("{name}: {error}")))?;
    }
    for file in ["tsconfig.json", "modules.d.ts"] {
        artifact::copy(&workspace::root().join("xtask/documents/node").join(file), &directory.join(file))?;
    }
    let pages: Vec<String> = documents::paths()?;
    for page in &pages {
        write_blocks(page, &directory_of(&directory, page))?;
    }
    let node = runtimes::preferred()?.program;
    ProcessStep::new("types of the code blocks in JavaScript", &node)
        .arg(package.join("node_modules/typescript/bin/tsc"))
        .args(["--project", "."])
        .in_directory(&directory)
        .run()?;
    // The first program runs in `docs::first_results`, which reads its flame graph.
    for page in pages.iter().filter(|page| *page != documents::FIRST_PROGRAMS) {
        let program = directory_of(&directory, page).join(PROGRAM);
        if program.exists() {
            ProcessStep::new(format!("code blocks of {page}"), &node)
                .arg(&program)
                .env("SPANPROF_STOP_TIMEOUT", "0.2")
                .in_directory(&directory)
                .time_limit(Duration::from_secs(60))
                .run()?;
        }
    }
    Ok(())
}

fn directory_of(directory: &Path, page: &str) -> std::path::PathBuf {
    directory.join(page.replace(['/', '.'], "-"))
}

fn write_blocks(page: &str, directory: &Path) -> StepResult {
    let text = scratch::read(&workspace::root().join(page))?;
    for block in code_blocks(&text).iter().filter(|block| ["js", "ts"].contains(&block.language)) {
        if let Some(file) = block.file {
            scratch::write(&directory.join(file), &block.text)?;
        }
    }
    match documents::blocks_of(&text, "js") {
        program if program.is_empty() => Ok(()),
        // CommonJS has no `await` at the top level.
        program => scratch::write(&directory.join(PROGRAM), &format!("(async () => {{\n{program}}})();\n")),
    }
}
