//! The page of the public API: its concepts and their name in each language, from core/conformance/surface.yaml.

use serde_norway::Value;

const SURFACE: &str = include_str!("../../../core/conformance/surface.yaml");

/// The text of docs/reference/api.md.
pub fn page() -> Result<String, String> {
    let surface: Value = serde_norway::from_str(SURFACE).map_err(|error| error.to_string())?;
    let mut page = "# Public API\n\nEvery language has these concepts. `core/conformance/surface.yaml` is the source of this page; the tests \
         of each language compare its names with the package.\n\n\
         | concept | Rust | Python | Node.js | Java | meaning | differences |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for concept in surface["concepts"].as_sequence().ok_or("no concepts")? {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = |language: &str| code(language, &text(&concept["names"][language]));
        let names = ["rust", "python", "node", "java"].map(name).join(" | ");
        let (meaning, difference) = (text(&concept["meaning"]), text(&concept["difference"]));
        page += &format!("| {} | {names} | {meaning} | {difference} |\n", text(&concept["concept"]));
    }
    page += "\n## Additional names\n\nEvery other public name, with the reason why not every language has it. `Config::*` is every public name of `Config`.\n\n\
             | Rust | Python | Node.js | Java | reason |\n|---|---|---|---|---|\n";
    for group in surface["additional"].as_sequence().ok_or("no additional names")? {
        let names = |language: &str| {
            let names = group["names"][language].as_sequence().into_iter().flatten().filter_map(Value::as_str);
            names.map(|name| code(language, name)).collect::<Vec<_>>().join(", ")
        };
        let names = ["rust", "python", "node", "java"].map(names).join(" | ");
        page += &format!("| {names} | {} |\n", group["reason"].as_str().unwrap_or_default());
    }
    Ok(page)
}

/// A name in the spelling of its language.
fn code(language: &str, name: &str) -> String {
    let separator = if language == "rust" { "::" } else { "." };
    format!("`{}`", name.replace('.', separator))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_in_docs_is_the_generated_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/api.md");
        assert_eq!(std::fs::read_to_string(path).unwrap(), super::page().unwrap(), "run `cargo xtask docs`");
    }
}
