//! `cargo xtask tidy`: asks every rule of the house about every file.

use super::Verb;
use crate::step::{Failure, Outcome};

pub const VERB: Verb = Verb {
    name: "tidy",
    usage: "tidy",
    about:
        "keeps the rules of the house by machine\n\n\
        unsafe only in its places and each with SAFETY; files of at most 500 lines that open by saying what they are;\n\
        no empty names, no unfinished work, no test switched off; who may know whom among the crates; a reason beside\n\
        each dependency; every room in ARCHITECTURE.md's code map; no language named in the core; no path of a machine.",
    options: &[],
    run: |_| run(),
};

/// Prints each finding; fails when there is one.
pub fn run() -> Outcome {
    println!("── tidy");
    let findings = crate::tidy::findings()?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(Failure::new("tidy", format!("{count} findings above"))),
    }
}
