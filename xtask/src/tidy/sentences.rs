//! Warning, not a violation: sentences of more than 30 words in the documents.

use super::prose;

/// Words from which on a sentence is reported.
const LONGEST_SENTENCE_WORDS: usize = 30;

/// A long sentence of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongSentence {
    pub path: String,
    /// Line of its first word, from 1.
    pub line: usize,
    pub words: usize,
    /// Its first words.
    pub start: String,
}

/// Long sentences of one file; none for files that are not documents.
pub fn long(path: &str, text: &str) -> Vec<LongSentence> {
    let root = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].contains(&path);
    let document = root || (path.starts_with("docs/") && path.ends_with(".md"));
    if !document {
        return Vec::new();
    }
    let mut sentences: Vec<(usize, Vec<String>)> = vec![(1, Vec::new())];
    for (at, line) in prose::markdown(text).iter().enumerate() {
        let trimmed = line.trim_start();
        // A heading, a table row, a list item and an empty line each begin a new text.
        let begins = trimmed.is_empty() || trimmed.starts_with(['#', '|', '>']) || is_item(trimmed);
        if begins {
            sentences.push((at + 1, Vec::new()));
        }
        // Cells of a table are separate texts.
        for token in trimmed.replace('|', " | ").split_whitespace() {
            let Some((line, words)) = sentences.last_mut() else { continue };
            if words.is_empty() {
                *line = at + 1;
            }
            if token.chars().any(|c| c.is_alphanumeric() || c == '¤') {
                words.push(token.to_owned());
            }
            if token == "|" || token.trim_end_matches([')', '*', '_']).ends_with(['.', '?', '!']) {
                sentences.push((at + 1, Vec::new()));
            }
        }
    }
    let long = sentences.into_iter().filter(|(_, words)| words.len() > LONGEST_SENTENCE_WORDS);
    long.map(|(line, words)| LongSentence {
        path: path.to_owned(),
        line,
        words: words.len(),
        start: words[..8].join(" ").replace('¤', "…"),
    })
    .collect()
}

fn is_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ") || line.starts_with("* ") || (number.len() < line.len() && number.starts_with(". "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(words: usize) -> String {
        format!("{}.\n", vec!["word"; words].join(" "))
    }

    #[test]
    fn a_sentence_of_31_words_is_long_and_one_of_30_is_not() {
        assert!(long("README.md", &sentence(30)).is_empty());
        let found = long("docs/a.md", &format!("One.\n\n{}", sentence(31)));
        assert_eq!((found.len(), found[0].line, found[0].words), (1, 3, 31));
    }

    #[test]
    fn lines_of_a_paragraph_are_one_text_and_list_items_and_cells_are_separate() {
        let twenty = vec!["word"; 20].join(" ");
        assert_eq!(long("README.md", &format!("{twenty}\n{twenty}\n")).len(), 1);
        assert!(long("README.md", &format!("- {twenty}\n- {twenty}\n")).is_empty());
        assert!(long("README.md", &format!("1. {twenty}\n2. {twenty}\n")).is_empty());
        assert!(long("README.md", &format!("| {twenty} | {twenty} |\n")).is_empty());
    }

    #[test]
    fn a_code_span_is_one_word_and_other_files_are_not_read() {
        let span = format!("`{}` is one.", vec!["word"; 40].join(" "));
        assert!(long("README.md", &span).is_empty());
        assert!(long("CHANGELOG.md", &sentence(40)).is_empty());
    }
}
