//! The code blocks of a document. The build script of xtask/documents includes this file.

/// A code block of a document.
#[derive(Debug, PartialEq, Eq)]
pub struct CodeBlock<'t> {
    /// First word after the opening fence, such as `sh`; empty without one.
    pub language: &'t str,
    /// The file that the block is, the second word after the opening fence: `shop.py` of `python shop.py`.
    pub file: Option<&'t str>,
    /// Line of its text in the document, from 1.
    pub line: usize,
    pub text: String,
}

/// The code blocks of a document, in their order.
pub fn code_blocks(text: &str) -> Vec<CodeBlock<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<CodeBlock<'_>> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                let mut words = info.split_whitespace();
                let (language, file) = (words.next().unwrap_or_default(), words.next());
                open = Some(CodeBlock { language, file, line: number + 1, text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}
