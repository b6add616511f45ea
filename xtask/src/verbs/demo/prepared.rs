//! What the demo prepared for a service stays for the next run while nothing that it was made of has changed.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::step::{Failure, Outcome};
use crate::{scratch, workspace};

/// The folder of a service, and a file that tells what it was made of.
pub struct Prepared {
    /// `target/demo-services/<name>`.
    pub folder: PathBuf,
    mark: PathBuf,
    inputs: String,
    may_stay: bool,
}

impl Prepared {
    /// Made of files of the work tree below the folders `sources`, of the libraries `built` from it, and by the tools of
    /// `versions`. Without libraries it is made each time.
    pub fn of(name: &str, sources: &[&str], built: &[PathBuf], versions: &str) -> Outcome<Self> {
        let mut hasher = DefaultHasher::new();
        versions.hash(&mut hasher);
        let tracked = workspace::files()?;
        let tracked = tracked.iter().filter(|file| sources.iter().any(|folder| file.starts_with(folder)));
        let tracked = tracked.map(|file| workspace::root().join(file));
        for file in tracked.chain(built.iter().cloned()) {
            let bytes = std::fs::read(&file)
                .map_err(|error| Failure::new("read file", format!("cannot read {}: {error}", file.display())))?;
            (file, bytes).hash(&mut hasher);
        }
        let folder = workspace::target().join("demo-services");
        let inputs = format!("{:016x}", hasher.finish());
        let mark = folder.join(format!("{name}.inputs"));
        Ok(Self { folder: folder.join(name), mark, inputs, may_stay: !built.is_empty() })
    }

    /// Whether it was made of the same before.
    pub fn is_current(&self) -> bool {
        let is_there = self.may_stay && self.folder.is_dir();
        is_there && std::fs::read_to_string(&self.mark).is_ok_and(|inputs| inputs == self.inputs)
    }

    /// Empties the folder and copies files of another into it.
    pub fn begin(&self, from: &Path, files: &[&str]) -> Outcome {
        let failed = |path: &Path, error: std::io::Error| {
            Failure::new("copy the service", format!("{}: {error}", path.display()))
        };
        drop(std::fs::remove_file(&self.mark));
        drop(std::fs::remove_dir_all(&self.folder));
        for file in files {
            let copy = self.folder.join(file);
            let folder = copy.parent().unwrap_or(&self.folder);
            std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
            scratch::write(&copy, &scratch::read(&from.join(file))?)?;
        }
        Ok(())
    }

    /// To be called when the folder is complete.
    pub fn complete(&self) -> Outcome {
        scratch::write(&self.mark, &self.inputs)
    }
}
