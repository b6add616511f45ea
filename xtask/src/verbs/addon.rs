//! `cargo xtask addon`: the npm package with its native module, audited, weighed, and run once from a clean folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Verb;
use crate::nodes::{self, Node};
use crate::step::{Failure, Outcome, Step};
use crate::venv::Venv;
use crate::{elf, pythons, scratch, workspace};

pub const VERB: Verb = Verb {
    name: "addon",
    usage: "addon",
    about: "builds the npm package into target/dist, audits it and starts it once\n\n\
        One native module for every Node.js from 18 on, linked by zig against glibc 2.28 and audited symbol by symbol; then\n\
        packed, installed into a clean folder without any script, and run on the Node.js on PATH, an older and a newer one.",
    options: &[],
    run: |_| run(),
};

/// Pinned, so that a build today and a build next month are the same build.
const ZIGBUILD: &str = "cargo-zigbuild==0.24.0";
const ZIG: &str = "ziglang==0.17.0";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Oldest glibc the package promises to run on: that of Node.js 18 itself.
const GLIBC_FLOOR: (u32, u32) = (2, 28);
/// Where the loader of the package looks on this platform; others lie beside it.
const PREBUILD: &str = "prebuilds/linux-x64/spanprof.node";
/// Budgets of the design, in bytes.
const LARGEST_PACKED: u64 = 4_000_000;
const LARGEST_INSTALLED: u64 = 10_000_000;

fn run() -> Outcome {
    let package = release_package()?;
    sizes(&package)?;
    first_run(&nodes::all()?, &package)?;
    println!("addon: {}", package.display());
    Ok(())
}

/// The release package in `target/dist`, audited.
pub fn release_package() -> Outcome<PathBuf> {
    let library = release()?;
    audit(&library)?;
    pack(&library, "dist")
}

fn release() -> Outcome<PathBuf> {
    let tools = Venv::with("addon-tools", &pythons::preferred()?, &[ZIGBUILD.to_owned(), ZIG.to_owned()])?;
    let floor = format!("{TARGET}.{}.{}", GLIBC_FLOOR.0, GLIBC_FLOOR.1);
    Step::new("build the release module", tools.program("cargo-zigbuild"))
        .args(["zigbuild", "--release", "--locked", "-p", "spanprof-node", "--target", &floor])
        .env("CARGO_TARGET_DIR", workspace::target())
        .env("CARGO_ZIGBUILD_PYTHON_PATH", tools.python())
        // Stacks are walked through our own calls too.
        .env("RUSTFLAGS", "-C force-frame-pointers=yes")
        .run()?;
    Ok(workspace::target().join(TARGET).join("release/libspanprof_node.so"))
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

fn copy(from: &Path, to: &Path) -> Outcome {
    let copied = to.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| {
        // Replaced, not written over: a running program may have the old one mapped.
        let _ = std::fs::remove_file(to);
        std::fs::copy(from, to).map(drop)
    });
    copied.map_err(|error| Failure::new("copy", format!("{} to {}: {error}", from.display(), to.display())))
}

fn audit(library: &Path) -> Outcome {
    println!("── symbol audit");
    let bytes = std::fs::read(library).map_err(|error| Failure::new("symbol audit", error.to_string()))?;
    let needed = elf::needed_versions(&bytes)?;
    let above = elf::above_glibc(&needed, GLIBC_FLOOR);
    if above.is_empty() {
        println!("needs {} symbol versions, all within glibc {}.{}", needed.len(), GLIBC_FLOOR.0, GLIBC_FLOOR.1);
        return Ok(());
    }
    let list: Vec<_> = above.iter().map(|needed| format!("{} of {}", needed.version, needed.library)).collect();
    let floor = format!("{}.{}", GLIBC_FLOOR.0, GLIBC_FLOOR.1);
    Err(Failure::new("symbol audit", format!("the package promises glibc {floor} but needs {}", list.join(", "))))
}

/// The package with the module of [`build_for_tests`], for tests of the package itself.
pub fn pack_for_tests() -> Outcome<PathBuf> {
    pack(&workspace::root().join("bindings-node").join(PREBUILD), "dist-for-tests")
}

/// The package with a module, packed by npm into a folder of the target folder.
fn pack(library: &Path, folder: &str) -> Outcome<PathBuf> {
    let staged = scratch::empty("addon-package")?;
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

fn sizes(package: &Path) -> Outcome {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len());
    let staged = workspace::target().join("addon-package");
    let packed = length(package);
    let installed: u64 = files_below(&staged).iter().map(|path| length(path)).sum();
    println!("size: {:.2} MB packed, {:.2} MB installed", packed as f64 / 1e6, installed as f64 / 1e6);
    if packed == 0 || packed > LARGEST_PACKED || installed > LARGEST_INSTALLED {
        let budget =
            format!("{} MB packed, {} MB installed", LARGEST_PACKED / 1_000_000, LARGEST_INSTALLED / 1_000_000);
        return Err(Failure::new("package size", format!("empty or above the budget of {budget}")));
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

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(files_below(&entry.path())),
            _ => files.push(entry.path()),
        }
    }
    files
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
