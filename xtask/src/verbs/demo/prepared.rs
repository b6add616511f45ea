//! Cache of the demo's prepared services: reused by the next run while its inputs are unchanged.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::step::{StepFailure, StepResult};
use crate::{git, scratch, workspace};

/// The directory of a service, and a file with the hash of its inputs.
pub struct Prepared {
    /// `target/demo-services/<name>`.
    pub directory: PathBuf,
    mark: PathBuf,
    inputs: String,
    is_cacheable: bool,
}

impl Prepared {
    /// Inputs: files of the work tree below `sources`, the libraries `built` from it, and the tools of `versions`. Without
    /// libraries it is prepared each time.
    pub fn of(name: &str, sources: &[&str], built: &[PathBuf], versions: &str) -> StepResult<Self> {
        let mut hasher = DefaultHasher::new();
        versions.hash(&mut hasher);
        let tracked = git::files()?;
        let tracked = tracked.iter().filter(|file| sources.iter().any(|directory| file.starts_with(directory)));
        let tracked = tracked.map(|file| workspace::root().join(file));
        for file in tracked.chain(built.iter().cloned()) {
            let bytes = std::fs::read(&file)
                .map_err(|error| StepFailure::new("read file", format!("cannot read {}: {error}", file.display())))?;
            (file, bytes).hash(&mut hasher);
        }
        let directory = workspace::target().join("demo-services");
        let inputs = format!("{:016x}", hasher.finish());
        let mark = directory.join(format!("{name}.inputs"));
        Ok(Self { directory: directory.join(name), mark, inputs, is_cacheable: !built.is_empty() })
    }

    /// Whether it was prepared from the same inputs before.
    pub fn is_current(&self) -> bool {
        let exists = self.is_cacheable && self.directory.is_dir();
        exists && std::fs::read_to_string(&self.mark).is_ok_and(|inputs| inputs == self.inputs)
    }

    /// Empties the directory and copies `files` of `from` into it.
    pub fn begin(&self, from: &Path, files: &[&str]) -> StepResult {
        drop(std::fs::remove_file(&self.mark));
        drop(std::fs::remove_dir_all(&self.directory));
        for file in files {
            scratch::write(&self.directory.join(file), &scratch::read(&from.join(file))?)?;
        }
        Ok(())
    }

    /// Marks the directory as complete.
    pub fn complete(&self) -> StepResult {
        scratch::write(&self.mark, &self.inputs)
    }
}
