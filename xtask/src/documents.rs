//! The documents of the repository, and the programs in them.

use crate::git;
use crate::step::StepResult;

/// Paths of the documents.
pub fn paths() -> StepResult<Vec<String>> {
    Ok(git::files()?.into_iter().filter(|path| path.ends_with(".md")).collect())
}

/// The code blocks of a document in one language, concatenated.
pub fn blocks_of(text: &str, language: &str) -> String {
    let opening = format!("```{language}");
    let mut program = String::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line.trim_end()) {
            (false, line) if line == opening => inside = true,
            (true, "```") => inside = false,
            (true, _) => {
                program.push_str(line);
                program.push('\n');
            }
            _ => {}
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_one_language_are_one_program() {
        let text = "a\n```sh\npip install x\n```\n```python\nimport x\n```\ntext\n```python\nx.y()\n```\n";
        assert_eq!(blocks_of(text, "python"), "import x\nx.y()\n");
    }
}
