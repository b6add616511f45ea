//! Where things are: the workspace's root, its target folder, the cargo that runs us. Called by every verb.

use std::path::PathBuf;

/// The root of the workspace. Asked at run time first: two clones may share one target folder and hence one program.
pub fn root() -> PathBuf {
    let asked = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let ours = asked.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    ours.parent().map(PathBuf::from).unwrap_or_default()
}

/// The cargo that started us, or the one on PATH.
pub fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// The folder of build products: CARGO_TARGET_DIR where set, else `target` at the root.
pub fn target() -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty());
    given.map_or_else(|| root().join("target"), |value| root().join(value))
}

/// Files of the work tree that git tracks or would track, relative to the root and sorted.
pub fn files() -> crate::step::Outcome<Vec<String>> {
    let list = crate::step::Step::new("list files", "git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .missing_means("install git")
        .capture()?;
    let root = root();
    let mut files: Vec<String> = list.lines().filter(|path| root.join(path).is_file()).map(str::to_owned).collect();
    files.sort();
    files.dedup();
    Ok(files)
}
