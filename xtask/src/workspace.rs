//! Paths: the workspace's root, its target directory, the cargo that runs xtask. Called by every verb.

use std::path::PathBuf;

/// The address of the repository; empty until it is known.
pub const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
/// The version of every package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The root of the workspace. Determined at run time: two clones may share a target directory and hence one binary.
pub fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let manifest = manifest.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    manifest.parent().map(PathBuf::from).unwrap_or_default()
}

/// The cargo that started xtask, or the one on PATH.
pub fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// The directory of build products: CARGO_TARGET_DIR where set, else `target` at the root.
pub fn target() -> PathBuf {
    let variable = std::env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty());
    variable.map_or_else(|| root().join("target"), |value| root().join(value))
}
