//! Virtual environments below the target directory, created once and reused while their inputs are unchanged.
//! Called by `test`, `wheel`, `live`, `bench`, `demo`, `docs`.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::interpreters::Python;
use crate::step::{ProcessStep, StepFailure, StepResult};

/// A virtual environment.
#[derive(Clone, Debug)]
pub struct Venv {
    directory: PathBuf,
    /// The root directory of its interpreter, unless it is installed on this machine.
    root: Option<PathBuf>,
}

impl Venv {
    /// The environment `target/venv/<name>-<minor>` with the given pip arguments installed (packages, `-r file`).
    pub fn with(name: &str, python: &Python, packages: &[String]) -> StepResult<Self> {
        let label = format!("{name}-{}", python.minor());
        let venv = Self { directory: crate::workspace::target().join("venv").join(&label), root: python.root.clone() };
        let stamp = venv.directory.join("made-from");
        let inputs = fingerprint(python, packages)?;
        if std::fs::read_to_string(&stamp).is_ok_and(|made| made == inputs) && venv.has_interpreter() {
            return Ok(venv);
        }
        let _ = std::fs::remove_dir_all(&venv.directory);
        ProcessStep::in_root(format!("make venv {label}"), python.root.as_deref(), &python.program)
            .args(["-m", "venv"])
            .arg(&venv.directory)
            .run()
            .map_err(|failure| failure.with_hint("Debian's Python needs `apt-get install python3-venv`"))?;
        if !packages.is_empty() {
            venv.pip(&format!("fill venv {label}"), packages)?;
        }
        crate::scratch::write(&stamp, &inputs)?;
        Ok(venv)
    }

    /// Runs `pip install` with `words`.
    pub fn pip(&self, name: &str, words: &[String]) -> StepResult {
        self.step(name)
            // Python compiles the modules that a test imports: a small part of them.
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"])
            .args(words)
            .run()
    }

    /// Installs our wheel in place of an earlier one, without dependencies.
    pub fn install_wheel(&self, wheel: &Path) -> StepResult {
        let words = ["--force-reinstall", "--no-deps", "--no-index"].map(str::to_owned);
        self.pip("install the wheel", &[&words[..], &[wheel.display().to_string()]].concat())
    }

    /// A step that runs its interpreter.
    pub fn step(&self, name: impl Into<String>) -> ProcessStep {
        ProcessStep::in_root(name, self.root.as_deref(), self.python())
    }

    /// Whether its link leads to an interpreter, which for another root cannot be seen from here.
    fn has_interpreter(&self) -> bool {
        self.root.is_some() || self.python().exists()
    }

    /// Its interpreter.
    pub fn python(&self) -> PathBuf {
        self.program("python")
    }

    /// One of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join("bin").join(name)
    }
}

/// Changes when the interpreter, the list, or a requirements file named in it changes.
fn fingerprint(python: &Python, packages: &[String]) -> StepResult<String> {
    let mut hasher = DefaultHasher::new();
    for file in packages.iter().filter(|word| word.ends_with(".txt")) {
        let text = std::fs::read(crate::workspace::root().join(file))
            .map_err(|error| StepFailure::new("read requirements", format!("{file}: {error}")))?;
        text.hash(&mut hasher);
    }
    Ok(format!("{} {} {packages:?} {:x}", python.program.display(), python.full(), hasher.finish()))
}
