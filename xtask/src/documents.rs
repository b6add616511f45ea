//! The documents of the repository: their links, headings and programs.

use crate::code_blocks::code_blocks;
use crate::git;
use crate::step::{StepFailure, StepResult};
use crate::{scratch, workspace};

/// The page with the first program of each language.
pub const FIRST_PROGRAMS: &str = "docs/start/README.md";

/// Paths of the documents.
pub fn paths() -> StepResult<Vec<String>> {
    Ok(git::files()?.into_iter().filter(|path| path.ends_with(".md")).collect())
}

/// Checks that each relative link has a target, each anchor a heading, and that the book lists each of its pages once.
pub fn check_links() -> StepResult {
    println!("── links");
    let paths = paths()?;
    let mut broken = Vec::new();
    for path in &paths {
        for link in links_of(&scratch::read(&workspace::root().join(path))?) {
            broken.extend(defect(path, &link)?.map(|defect| format!("{path}: {link} {defect}")));
        }
    }
    let listed: Vec<String> =
        links_of(&scratch::read(&workspace::root().join(SUMMARY))?).iter().map(|link| resolve(SUMMARY, link)).collect();
    for page in paths.iter().filter(|path| path.starts_with("docs/") && *path != SUMMARY) {
        match listed.iter().filter(|listed| *listed == page).count() {
            1 => {}
            count => broken.push(format!("{SUMMARY}: lists {page} {count} times instead of once")),
        }
    }
    if broken.is_empty() {
        Ok(())
    } else {
        Err(StepFailure::new("links", format!("broken:\n  {}", broken.join("\n  "))))
    }
}

const SUMMARY: &str = "docs/SUMMARY.md";

/// Why a link of the document `path` leads nowhere.
fn defect(path: &str, link: &str) -> StepResult<Option<String>> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { path.to_owned() } else { resolve(path, file) };
    let place = workspace::root().join(&target);
    if !place.exists() {
        return Ok(Some("does not exist".to_owned()));
    }
    let is_heading = anchor.is_empty()
        || !target.ends_with(".md")
        || anchors_of(&scratch::read(&place)?).contains(&anchor.to_owned());
    Ok((!is_heading).then(|| format!("names no heading of {target}")))
}

/// The path from the root that a relative link of a document names.
pub fn resolve(document: &str, link: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !matches!(*part, "" | ".")) {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Relative links, with their anchors.
fn links_of(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    replace_links(text, |_, link| {
        if !link.contains("://") && !link.starts_with("mailto:") {
            links.push(link.to_owned());
        }
        None
    });
    links
}

/// Replaces each link `[label](target)` outside code by the result of `replacement`, where there is one.
pub fn replace_links(text: &str, mut replacement: impl FnMut(&str, &str) -> Option<String>) -> String {
    let mut page = String::new();
    for (line, is_code) in lines(text) {
        let mut rest = line;
        while let Some(middle) = rest.find("](").filter(|_| !is_code) {
            let (before, after) = (&rest[..middle], &rest[middle + 2..]);
            let (Some(opening), Some(closing)) = (before.rfind('['), after.find(')')) else { break };
            match replacement(&before[opening + 1..], &after[..closing]) {
                Some(text) => page += &format!("{}{text}", &before[..opening]),
                None => page += &rest[..middle + closing + 3],
            }
            rest = &after[closing + 1..];
        }
        page += rest;
        page.push('\n');
    }
    page
}

/// The anchors of the headings, as GitHub and mdBook derive them.
fn anchors_of(text: &str) -> Vec<String> {
    let mut anchors = Vec::<String>::new();
    for (line, is_code) in lines(text) {
        let title = line.trim_start_matches('#');
        if is_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let title = replace_links(title.trim(), |label, _| Some(label.to_owned()));
        let letters = title.trim_end().chars().filter_map(|letter| match letter {
            letter if letter.is_alphanumeric() || "_-".contains(letter) => Some(letter),
            letter => letter.is_whitespace().then_some('-'),
        });
        let anchor = letters.collect::<String>().to_lowercase();
        let earlier =
            anchors.iter().filter(|earlier| earlier.trim_end_matches(char::is_numeric).trim_end_matches('-') == anchor);
        match earlier.count() {
            0 => anchors.push(anchor),
            count => anchors.push(format!("{anchor}-{count}")),
        }
    }
    anchors
}

/// The lines, each with whether it belongs to a code block.
fn lines(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut is_code = false;
    text.lines().map(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (line, is_code || is_fence)
    })
}

/// The code blocks of a document in one language that are no files, concatenated.
pub fn blocks_of(text: &str, language: &str) -> String {
    let blocks = code_blocks(text).into_iter().filter(|block| block.language == language && block.file.is_none());
    blocks.map(|block| block.text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_one_language_are_one_program() {
        let text = "a\n```sh\npip install x\n```\n```python\nimport x\n```\ntext\n```python\nx.y()\n```\n```python a.py\n1\n```\n";
        assert_eq!(blocks_of(text, "python"), "import x\nx.y()\n");
    }
    #[test]
    fn links_have_their_anchors_and_links_of_code_are_none() {
        let text = "[a](docs/a.md#top) [b](https://x.y) [c](b.md)\n```sh\n[x](y.md)\n```\n[d](#here)";
        assert_eq!(links_of(text), ["docs/a.md#top", "b.md", "#here"]);
    }

    #[test]
    fn a_link_resolves_from_the_directory_of_its_document() {
        assert_eq!(resolve("docs/guides/a.md", "../reference/./b.md"), "docs/reference/b.md");
        assert_eq!(resolve("README.md", "docs/"), "docs");
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# `stats()`: a [link](b.md), twice\n## Heap\n```sh\n# no heading\n```\n## Heap\n#tag\n### p99 – 1";
        assert_eq!(anchors_of(text), ["stats-a-link-twice", "heap", "heap-1", "p99--1"]);
    }
}
