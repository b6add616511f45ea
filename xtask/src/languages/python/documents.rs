//! The Python blocks of the documents, and the guides that run with Python.

use std::time::Duration;

use super::{package, runtimes, Venv};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{command_lines, documents, guides, scratch, workspace};

/// Runs the Python blocks of each document that has any, in one program per document.
pub fn run_blocks() -> StepResult {
    let python = runtimes::preferred()?;
    let packages =
        ["-r", "examples/python-fastapi/requirements.txt", "gunicorn", "celery", "django"].map(str::to_owned);
    let venv = Venv::with("documents", &python, &packages)?;
    venv.install_wheel(&package::build_for_tests()?)?;
    let directory = scratch::empty("docs-blocks")?;
    let mut count = 0;
    for path in documents::paths()?
        .iter()
        .filter(|path| *path == "README.md" || path.starts_with("docs/") || path.starts_with("bindings-python/"))
    {
        let program = documents::blocks_of(&scratch::read(&workspace::root().join(path))?, "python");
        if program.is_empty() {
            continue;
        }
        let file = directory.join(format!("{}.py", path.replace(['/', '.'], "_")));
        scratch::write(&file, &program)?;
        ProcessStep::new(format!("code blocks of {path}"), venv.python())
            .arg(&file)
            .env("SPANPROF_STOP_TIMEOUT", "0.2")
            .in_directory(&directory)
            .time_limit(Duration::from_secs(60))
            .run()?;
        count += 1;
    }
    match count {
        0 => Err(StepFailure::new("code blocks", "no document has one")),
        _ => {
            command_lines::check(&venv.program("spanprof"))?;
            guides::run("python", &[venv.program("")], |_| Ok(()))
        }
    }
}
