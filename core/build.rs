//! Passes the version of the Rust compiler to the crate, which reports it as the version of the runtime.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    println!("cargo::rustc-env=RUSTC_VERSION_OF_BUILD={}", rustc_version().unwrap_or_default());
}

/// `1.88.0` of `rustc 1.88.0 (6b00bc388 2025-06-23)`.
fn rustc_version() -> Option<String> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split_whitespace().nth(1).map(str::to_owned)
}
