//! Writes the Rust code blocks of the documents into one module, each as a function.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

#[path = "../src/code_blocks.rs"]
mod code_blocks;

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for source in ["README.md", "docs"] {
        println!("cargo:rerun-if-changed=../../{source}");
    }
    let mut pages = vec![root.join("README.md")];
    for directory in entries(&root.join("docs"))?.iter().filter(|path| path.is_dir()) {
        pages.extend(entries(directory)?);
    }
    let mut module = String::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let name = page.strip_prefix(&root).unwrap_or(page).display().to_string();
        for block in code_blocks::code_blocks(&fs::read_to_string(page)?) {
            if block.language == "rust" {
                module += &function(&name, &block);
            }
        }
    }
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("blocks.rs"), module)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// A block as the body of a function. A program has one global allocator: in each block it is an ordinary static.
fn function(page: &str, block: &code_blocks::CodeBlock<'_>) -> String {
    let name = page.replace(['/', '.', '-'], "_");
    let text = block.text.replace("#[global_allocator]\n", "\n");
    format!("// {page}:{line}\nasync fn {name}_{line}() -> BlockResult {{\n{text};\nOk(())\n}}\n", line = block.line)
}
