//! What the Rust code blocks of the documents use of their program.

#[allow(non_upper_case_globals)]
pub const query: &str = "";

pub fn price(items: u64) -> u64 {
    items
}

pub async fn search(text: &str) -> usize {
    text.len()
}

pub async fn cart() -> &'static str {
    ""
}
