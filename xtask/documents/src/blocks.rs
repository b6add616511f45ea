//! The Rust code blocks of the documents, each as the body of a function, which clippy compiles. `blocks.rs` comes from the build
//! script; an error names the function, which has the name and the line of its page.

#[allow(warnings, clippy::all)]
mod blocks {
    use spanprof_documents::*;

    type BlockResult = Result<(), Box<dyn std::error::Error>>;

    include!(concat!(env!("OUT_DIR"), "/blocks.rs"));
}
