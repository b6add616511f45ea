//! Step `reproducible`: a clone in another directory, with a target directory, a umask, a time zone and an encoding of its own, builds
//! the same bytes.

use std::ffi::OsStr;
use std::time::Duration;

use super::files::{self, CHECKSUMS};
use super::packages::{self, dist};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{git, scratch, workspace};

/// A cold build of all packages on two cores that do other work too.
const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

pub fn check() -> StepResult {
    let name = "reproducible";
    let Some(commit) = git::commit()? else {
        return Err(StepFailure::new(name, "the work tree has changes, which a clone lacks").with_hint("commit them"));
    };
    packages::check()?;
    files::write()?;
    // The directory differs in its length too.
    let clone = scratch::empty("reproducible")?.join("second/clone");
    private("clone", "git").args(["clone", "--quiet"]).arg(workspace::root()).arg(&clone).run()?;
    private("check out", "git").args(["checkout", "--quiet", &commit]).in_directory(&clone).run()?;
    private("build the packages in the clone", workspace::cargo())
        .args(["xtask", "release", "--dry-run", "--step", "packages", "--step", "files"])
        .env("CARGO_TARGET_DIR", clone.join("target"))
        .env("TZ", "Pacific/Kiritimati")
        .env("LC_ALL", "C")
        .in_directory(&clone)
        .time_limit(LIMIT)
        .run()?;
    let first = scratch::read(&dist().join(CHECKSUMS))?;
    let second = scratch::read(&clone.join("target/dist").join(CHECKSUMS))?;
    let different = differences(&first, &second);
    match different.is_empty() {
        true => {
            println!("{} files are equal in both builds", first.lines().count());
            Ok(())
        }
        false => {
            let message =
                format!("{} differ from those in {}", different.join(", "), clone.join("target/dist").display());
            Err(StepFailure::new(name, message).with_hint("diffoscope FILE FILE shows the differences"))
        }
    }
}

/// A program whose files are private to the user.
fn private(name: &str, program: impl AsRef<OsStr>) -> ProcessStep {
    ProcessStep::new(name, "sh").args(["-c", "umask 077 && exec \"$@\"", "sh"]).arg(program)
}

/// Names of the files whose checksums are not in both lists.
fn differences(first: &str, second: &str) -> Vec<String> {
    let only = |one: &str, other: &str| -> Vec<String> {
        let lines = one.lines().filter(|line| !other.lines().any(|same| same == *line));
        lines.filter_map(|line| line.split_whitespace().last().map(str::to_owned)).collect()
    };
    let mut names = [only(first, second), only(second, first)].concat();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_and_missing_files_are_named() {
        assert_eq!(differences("1  a\n2  b\n", "1  a\n2  b\n"), [""; 0]);
        assert_eq!(differences("1  a\n2  b\n3  d\n", "1  a\n9  b\n"), ["b", "d"]);
    }
}
