//! Step `reproducible`: a clone in another directory, with a target directory of its own, builds the same bytes.

use super::packages::{self, dist, BUILT_FROM};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{git, scratch, workspace};

pub fn check() -> StepResult {
    let name = "reproducible";
    let Some(commit) = git::commit()? else {
        return Err(StepFailure::new(name, "the work tree has changes, which a clone lacks").with_hint("commit them"));
    };
    packages::check()?;
    // The directory differs in its length too.
    let clone = scratch::empty("reproducible")?.join("second/clone");
    ProcessStep::new("clone", "git").args(["clone", "--quiet"]).arg(workspace::root()).arg(&clone).run()?;
    ProcessStep::new("check out", "git").args(["checkout", "--quiet", &commit]).in_directory(&clone).run()?;
    ProcessStep::cargo("build the packages in the clone")
        .args(["xtask", "release", "--dry-run", "--step", "packages"])
        .env("CARGO_TARGET_DIR", clone.join("target"))
        .in_directory(&clone)
        .run()?;
    let first = scratch::read(&dist().join(BUILT_FROM))?;
    let second = scratch::read(&clone.join("target/dist").join(BUILT_FROM))?;
    let different = differences(&first, &second);
    match different.is_empty() {
        true => {
            println!("{} packages are equal in both builds", first.lines().count() - 1);
            Ok(())
        }
        false => {
            let message =
                format!("{} differ from those in {}", different.join(", "), clone.join("target/dist").display());
            Err(StepFailure::new(name, message).with_hint("diffoscope FILE FILE shows the differences"))
        }
    }
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
        assert_eq!(differences("c\n1  a\n2  b\n", "c\n1  a\n2  b\n"), [""; 0]);
        assert_eq!(differences("c\n1  a\n2  b\n3  d\n", "c\n1  a\n9  b\n"), ["b", "d"]);
    }
}
