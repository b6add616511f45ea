//! The command lines of `spanprof` in the documents: each verb and each flag must exist. It also covers the blocks of pages that do
//! not run as guides, because they need a receiver, an object storage or files of the reader.

use std::collections::BTreeMap;
use std::path::Path;

use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{documents, scratch, workspace};

/// Compares the blocks `sh` of every document with the help texts of `program`.
pub fn check(program: &Path) -> StepResult {
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut unknown = Vec::new();
    for page in documents::paths()? {
        for line in commands_of(&documents::blocks_of(&scratch::read(&workspace::root().join(&page))?, "sh")) {
            // `run` belongs to the Python package and accepts every key of the configuration as a flag.
            let Some(verb) = line.get(1).filter(|verb| *verb != "run") else { continue };
            if !helps.contains_key(verb) {
                let step = ProcessStep::new(format!("help of {verb}"), program).args([verb.as_str(), "--help"]);
                let (status, text) = step.capture_any()?;
                helps.insert(verb.clone(), if status.success() { text } else { String::new() });
            }
            let help = helps.get(verb).map_or("", String::as_str);
            let flags = line.iter().filter(|word| word.starts_with("--"));
            let flags = flags.map(|word| word.split('=').next().unwrap_or(word));
            let missing: Vec<&str> =
                flags.filter(|flag| !help.split([' ', ',', '\n']).any(|word| word == *flag)).collect();
            if help.is_empty() || !missing.is_empty() {
                unknown.push(format!("{page}: {} ({})", line.join(" "), missing.join(" ")));
            }
        }
    }
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(StepFailure::new("command lines", format!("no such verb or flag:\n  {}", unknown.join("\n  "))))
    }
}

/// The words of each call of `spanprof` in a script. Quoted words are split too, which no flag notices.
fn commands_of(script: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    for line in script.replace("\\\n", " ").lines() {
        let line = line.split(" #").next().unwrap_or_default();
        for part in line.split(['|', ';', '&', '(', ')']) {
            let words = part.split_whitespace().skip_while(|word| word.contains('=') || *word == "do");
            let words: Vec<String> = words.map(str::to_owned).collect();
            if words.first().is_some_and(|word| word == "spanprof") {
                commands.push(words);
            }
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_behind_variables_pipes_and_line_breaks() {
        let script = "A=1 spanprof top x --json | head  # spanprof no\nSPAN=$(spanprof spans p \\\n  --by trace)\necho spanprof tree\n";
        let commands: Vec<String> = commands_of(script).iter().map(|words| words.join(" ")).collect();
        assert_eq!(commands, ["spanprof top x --json", "spanprof spans p --by trace"]);
    }
}
