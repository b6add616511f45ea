//! Virtual environments under the target folder, made once and kept while what they were made from stays the same.
//! Called by `test`, `wheel`, `live`, `bench`, `demo`, `docs`.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::pythons::Python;
use crate::step::{Failure, Outcome, Step};

/// A virtual environment.
#[derive(Clone, Debug)]
pub struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// The environment `target/venv/<name>-<minor>` with the given pip arguments installed (packages, `-r file`).
    pub fn with(name: &str, python: &Python, packages: &[String]) -> Outcome<Self> {
        let label = format!("{name}-{}", python.minor());
        let venv = Self { folder: crate::workspace::target().join("venv").join(&label) };
        let stamp = venv.folder.join("made-from");
        let wanted = fingerprint(python, packages)?;
        if std::fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) && venv.python().exists() {
            return Ok(venv);
        }
        let _ = std::fs::remove_dir_all(&venv.folder);
        Step::new(format!("make venv {label}"), &python.program)
            .args(["-m", "venv"])
            .arg(&venv.folder)
            .run()
            .map_err(|failure| failure.with_way_out("Debian's Python needs `apt-get install python3-venv`"))?;
        if !packages.is_empty() {
            venv.pip(&format!("fill venv {label}"), packages)?;
        }
        crate::scratch::write(&stamp, &wanted)?;
        Ok(venv)
    }

    /// Installs into it: the words after `pip install`.
    pub fn pip(&self, name: &str, words: &[String]) -> Outcome {
        Step::new(name, self.python())
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"])
            .args(words)
            .run()
    }

    /// Puts a wheel of ours in, replacing the one before, without looking for anything else.
    pub fn install_wheel(&self, wheel: &Path) -> Outcome {
        let words = ["--force-reinstall", "--no-deps", "--no-index"].map(str::to_owned);
        self.pip("install the wheel", &[&words[..], &[wheel.display().to_string()]].concat())
    }

    /// Its interpreter.
    pub fn python(&self) -> PathBuf {
        self.program("python")
    }

    /// One of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }
}

/// Changes when the interpreter, the list, or a requirements file named in it changes.
fn fingerprint(python: &Python, packages: &[String]) -> Outcome<String> {
    let mut hasher = DefaultHasher::new();
    for file in packages.iter().filter(|word| word.ends_with(".txt")) {
        let text = std::fs::read(crate::workspace::root().join(file))
            .map_err(|error| Failure::new("read requirements", format!("{file}: {error}")))?;
        text.hash(&mut hasher);
    }
    Ok(format!("{} {} {packages:?} {:x}", python.program.display(), python.full(), hasher.finish()))
}
