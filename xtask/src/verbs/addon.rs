//! `cargo xtask addon`: the npm package with its native module, audited, weighed, and run once from a clean folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Verb;
use crate::artefact::{self, copy, Glibc};
use crate::nodes::{self, Node};
use crate::step::{Failure, Outcome, Step};
use crate::{scratch, workspace};

pub const VERB: Verb = Verb {
    name: "addon",
    usage: "addon",
    about: "builds the npm package into target/dist, audits it and starts it once\n\n\
        One native module for every Node.js from 18 on, linked by zig against glibc 2.28 and audited symbol by symbol; then\n\
        packed, installed into a clean folder without any script, and run on the Node.js on PATH, an older and a newer one.",
    options: &[],
    run: |_| run(),
};

/// Oldest glibc the package promises to run on: that of Node.js 18 itself.
const GLIBC: Glibc = Glibc(2, 28);
/// Where the loader of the package looks on this platform; others lie beside it.
const PREBUILD: &str = "prebuilds/linux-x64/spanprof.node";
/// Folder below the target folder with the files that are packed.
const STAGED: &str = "addon-package";

fn run() -> Outcome {
    let package = release_package()?;
    artefact::sizes("npm package", &package, &artefact::files_below(&workspace::target().join(STAGED)))?;
    first_run(&nodes::all()?, &package)?;
    println!("addon: {}", package.display());
    Ok(())
}

/// The release package in `target/dist`, audited.
pub fn release_package() -> Outcome<PathBuf> {
    // Stacks are walked through our own calls too.
    let library = artefact::release_library("spanprof-node", GLIBC, &[("RUSTFLAGS", "-C force-frame-pointers=yes")])?;
    artefact::audit("npm package", &library, GLIBC)?;
    pack(&library, "dist")
}

/// A module of the profile that the workspace's tests use, with the doors that tests need, put where the package in the work
/// tree looks for it.
pub fn build_for_tests() -> Outcome<PathBuf> {
    Step::cargo("build the module for tests")
        .args(["build", "--locked", "-p", "spanprof-node", "--features", "testing"])
        .run()?;
    let package = workspace::root().join("bindings-node");
    copy(&workspace::target().join("debug/libspanprof_node.so"), &package.join(PREBUILD))?;
    Ok(package)
}

/// The package with the module that the demo built.
pub fn pack_for_demo() -> Outcome<PathBuf> {
    pack(&workspace::target().join("optimized/libspanprof_node.so"), "package-for-demo")
}

/// The package with the module of [`build_for_tests`], for tests of the package itself.
pub fn pack_for_tests() -> Outcome<PathBuf> {
    pack(&workspace::root().join("bindings-node").join(PREBUILD), "dist-for-tests")
}

/// The package with a module, packed by npm into a folder of the target folder.
fn pack(library: &Path, folder: &str) -> Outcome<PathBuf> {
    let staged = scratch::empty(STAGED)?;
    let root = workspace::root();
    for file in workspace::files()? {
        let Some(inside) = file.strip_prefix("bindings-node/") else { continue };
        if ["lib/", "types/"].iter().any(|part| inside.starts_with(part))
            || ["package.json", "README.md"].contains(&inside)
        {
            copy(&root.join(&file), &staged.join(inside))?;
        }
    }
    copy(&root.join("LICENSE"), &staged.join("LICENSE"))?;
    copy(library, &staged.join(PREBUILD))?;
    no_install_script(&scratch::read(&staged.join("package.json"))?)?;
    let dist = workspace::target().join(folder);
    std::fs::create_dir_all(&dist).map_err(|error| Failure::new("pack", format!("{}: {error}", dist.display())))?;
    let said = nodes::npm("pack")
        .args(["pack", "--ignore-scripts", "--silent", "--pack-destination"])
        .arg(&dist)
        .inside(&staged)
        .capture()?;
    Ok(dist.join(said.lines().last().unwrap_or_default().trim()))
}

/// npm blocks such scripts by default, and a package that needs one is broken out of the box.
fn no_install_script(manifest: &str) -> Outcome {
    let manifest: serde_json::Value =
        serde_json::from_str(manifest).map_err(|error| Failure::new("package.json", error.to_string()))?;
    for script in ["preinstall", "install", "postinstall", "prepare"] {
        if !manifest["scripts"][script].is_null() {
            return Err(Failure::new("package.json", format!("has an `{script}` script; a package of ours has none")));
        }
    }
    Ok(())
}

/// Installs the package alone into a clean folder and runs the first minute of a user, on each Node.js.
pub fn first_run(nodes: &[Node], package: &Path) -> Outcome {
    let modules = nodes::install(package, &[], "addon-first-run")?;
    let folder = modules.parent().unwrap_or(&modules);
    let program = scratch::read(&workspace::root().join("xtask/addon/first_run.mjs"))?;
    scratch::write(&folder.join("first_run.mjs"), &program)?;
    for node in nodes {
        Step::new(format!("first run on Node.js {}", node.version), &node.program)
            .arg("first_run.mjs")
            .inside(folder)
            .within(Duration::from_secs(120))
            .run()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_with_an_install_script_is_refused() {
        assert!(no_install_script(r#"{"scripts": {"types": "tsc"}}"#).is_ok());
        assert!(no_install_script(r#"{"scripts": {"postinstall": "node x"}}"#).is_err());
    }
}
