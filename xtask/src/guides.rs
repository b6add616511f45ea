//! Guides: documents whose commands run. A guide begins with `<!-- runs with python -->` (or node, java, rust). Its blocks run in their
//! order, in a directory of their own:
//!
//! - a block with a name, such as ```` ```python shop.py ````, is the file of that name;
//! - a block `sh` is executed; one that fails fails the guide;
//! - a block `text` is the output of the commands before it. Each word of at least four letters must occur in the real output;
//!   numbers and directories differ from run to run.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::code_blocks::{code_blocks, CodeBlock};
use crate::deadline::at_most;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{documents, progress, scratch, workspace};

/// `spanprof serve` in guides listens on its default port; the guides of several languages run at the same time.
static DEFAULT_PORT: Mutex<()> = Mutex::new(());

/// Runs every guide of a language. `programs` are directories in front of PATH; `prepare` fills the directory of a guide.
pub fn run(language: &str, programs: &[PathBuf], prepare: impl Fn(&Path) -> StepResult) -> StepResult {
    let mut count = 0;
    for page in documents::paths()? {
        let text = scratch::read(&workspace::root().join(&page))?;
        if !text.starts_with(&format!("<!-- runs with {language} -->")) {
            continue;
        }
        let directory = scratch::empty(&name(&page))?;
        let examples = std::os::unix::fs::symlink(workspace::root().join("examples"), directory.join("examples"));
        examples.map_err(|error| StepFailure::new("examples of the guides", error.to_string()))?;
        prepare(&directory)?;
        let _alone =
            text.contains("\nspanprof serve").then(|| DEFAULT_PORT.lock().unwrap_or_else(PoisonError::into_inner));
        run_page(&page, &blocks_of(&text), programs, &directory)?;
        count += 1;
    }
    match count {
        0 => Err(StepFailure::new("guides", format!("no document runs with {language}"))),
        _ => Ok(()),
    }
}

fn name(page: &str) -> String {
    format!("guide-{}", page.replace(['/', '.'], "-"))
}

/// Where a guide has run.
pub fn directory(page: &str) -> PathBuf {
    workspace::target().join(name(page))
}

fn run_page(page: &str, blocks: &[GuideBlock], programs: &[PathBuf], directory: &Path) -> StepResult {
    scratch::write(&directory.join("guide.sh"), &script(blocks))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(programs.iter().cloned().chain(std::env::split_paths(&path))).unwrap_or(path);
    let outcome = ProcessStep::new(format!("guide {page}"), "bash")
        .arg("guide.sh")
        .env("PATH", path)
        .env("CLONE", workspace::root())
        .in_directory(directory)
        .time_limit(at_most(15))
        .run();
    let commands = blocks.iter().filter(|block| block.kind == BlockKind::Commands).count();
    let outputs: Vec<String> =
        (1..=commands).map(|number| scratch::read(&directory.join(output(number))).unwrap_or_default()).collect();
    outcome.inspect_err(|_| progress::print(&outputs.concat()))?;
    let mut number = 0;
    for block in blocks {
        match block.kind {
            BlockKind::Commands => number += 1,
            BlockKind::Output => check_output(page, &block.text, outputs.get(number - 1).map_or("", String::as_str))?,
            BlockKind::File(_) => {}
        }
    }
    Ok(())
}

/// The name of the file with the output of a block of commands.
fn output(number: usize) -> String {
    format!("output-{number}")
}

fn check_output(page: &str, shown: &str, real: &str) -> StepResult {
    let real_words: Vec<&str> = words(real).collect();
    let missing: Vec<&str> = words(shown).filter(|word| !real_words.contains(word)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!("{page} shows `{}`, which the command did not print:\n{real}", missing.join("`, `"));
    Err(StepFailure::new("output in a guide", message).with_hint("replace the output in the guide by a real one"))
}

/// Words of at least four letters, without the directories of paths.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_letter = |letter: char| letter.is_alphabetic() || letter == '_';
    let names = text.split_whitespace().filter_map(|part| part.rsplit('/').next());
    names.flat_map(move |name| name.split(move |letter| !is_letter(letter))).filter(|word| word.chars().count() >= 4)
}

#[derive(Debug, PartialEq, Eq)]
struct GuideBlock {
    kind: BlockKind,
    text: String,
}

#[derive(Debug, PartialEq, Eq)]
enum BlockKind {
    File(String),
    Commands,
    Output,
}

/// The blocks that matter for a run.
fn blocks_of(text: &str) -> Vec<GuideBlock> {
    let mut blocks = Vec::new();
    for CodeBlock { language, file, text, .. } in code_blocks(text) {
        let kind = match (file, language) {
            (Some(file), _) => BlockKind::File(file.to_owned()),
            (None, "sh") => BlockKind::Commands,
            (None, "text") if !blocks.is_empty() => BlockKind::Output,
            _ => continue,
        };
        blocks.push(GuideBlock { kind, text });
    }
    blocks
}

fn script(blocks: &[GuideBlock]) -> String {
    let mut script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nOUTPUTS=$PWD\n".to_owned();
    let mut number = 0;
    for GuideBlock { kind, text } in blocks {
        match kind {
            BlockKind::File(name) => {
                script += &format!("mkdir -p $(dirname {name})\ncat > {name} <<'END OF FILE'\n{text}END OF FILE\n")
            }
            BlockKind::Commands => {
                number += 1;
                script += &format!("exec > \"$OUTPUTS/{}\" 2>&1\n{text}", output(number));
            }
            BlockKind::Output => {}
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "Save as\n```python shop.py\nprint('reserve 17')\n```\n```sh\npython shop.py\n```\n```text\nreserve 18\n```\n";

    #[test]
    fn a_guide_is_a_script_of_its_files_and_commands() {
        let script = script(&blocks_of(PAGE));
        assert!(script.ends_with(
            "cat > shop.py <<'END OF FILE'\nprint('reserve 17')\nEND OF FILE\nexec > \"$OUTPUTS/output-1\" 2>&1\npython shop.py\n"
        ));
    }

    #[test]
    fn words_of_the_shown_output_must_be_printed_and_numbers_and_directories_may_differ() {
        assert!(check_output("page", "59.3 s  reserve  /srv/shop/shop.py:7", "60.1 s  reserve  /opt/shop.py:7").is_ok());
        let message = check_output("page", "59.3 s  reserve", "60.1 s  release").unwrap_err().to_string();
        assert!(message.contains("`reserve`"), "{message}");
    }
}
