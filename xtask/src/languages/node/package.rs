//! `cargo xtask addon`: builds the npm package and those of the platforms with their native modules, audits them, checks their sizes,
//! and runs them once from a clean directory. Packages for tests hold the module of this machine themselves.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{json, Map, Value};

use super::runtimes::{self, NodeJs};
use crate::artifact::{self, copy, Glibc};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::target::{Target, TargetArguments};
use crate::workspace::{self, REPOSITORY, VERSION};
use crate::{git, scratch, third_party};

/// Oldest supported glibc: that of Node.js 18.
const GLIBC: Glibc = Glibc(2, 28);
/// Path of this platform's module in the package.
pub const PREBUILD: &str = "prebuilds/linux-x64/spanprof.node";
/// Directory of the files to pack, below the target directory.
const STAGED: &str = "addon-package";
/// The module in the package of a platform.
const MODULE: &str = "spanprof.node";

/// Builds the release packages into `target/dist` and audits them. The package for this machine is run once.
pub fn run(arguments: &TargetArguments) -> StepResult {
    let targets = arguments.targets();
    for target in &targets {
        let package = release_module(*target)?;
        artifact::sizes("npm package", &package, &artifact::files_below(&workspace::target().join(STAGED)), 1)?;
        println!("addon: {}", package.display());
    }
    let package = pack(None, "dist")?;
    if targets.contains(&Target::HOST) {
        first_run(&runtimes::all()?, &package)?;
    }
    println!("addon: {}", package.display());
    Ok(())
}

/// The release package in `target/dist`, and beside it that of this machine's platform, audited.
pub fn release_package() -> StepResult<PathBuf> {
    release_module(Target::HOST)?;
    pack(None, "dist")
}

/// The package of a platform in `target/dist`, audited.
fn release_module(target: Target) -> StepResult<PathBuf> {
    // Stacks are also walked through frames of the addon.
    let library = artifact::release_library("spanprof-node", target, GLIBC, "-C force-frame-pointers=yes")?;
    artifact::audit("npm package", &library, target, GLIBC)?;
    pack_module(&library, target, "dist")
}

/// The package of a platform in the dev profile.
pub fn build_for_platform(target: Target) -> StepResult<PathBuf> {
    pack_module(&artifact::dev_library("spanprof-node", target)?, target, "dist-for-tests")
}

/// Packs a module as the package of its platform into a directory below the target directory.
fn pack_module(library: &Path, target: Target, directory: &str) -> StepResult<PathBuf> {
    let staged = scratch::empty(STAGED)?;
    copy(&workspace::root().join("LICENSE"), &staged.join("LICENSE"))?;
    third_party::write(&["spanprof-node"], &staged.join(third_party::FILE))?;
    copy(library, &staged.join(MODULE))?;
    let own = scratch::read(&workspace::root().join("bindings-node/package.json"))?;
    scratch::write(&staged.join("package.json"), &platform_manifest(&own, REPOSITORY, target)?)?;
    let platform = target.npm().0;
    let text = format!(
        "# {}\n\nThe native module of spanprof for {platform}, which the package `spanprof` installs.\n",
        target.npm_package()
    );
    scratch::write(&staged.join("README.md"), &text)?;
    npm_pack(&staged, directory)
}

/// Copies the module of [`artifact::for_tests`] into the package in the work tree.
pub fn build_for_tests() -> StepResult<PathBuf> {
    let package = workspace::root().join("bindings-node");
    copy(&artifact::for_tests()?.join("libspanprof_node.so"), &package.join(PREBUILD))?;
    Ok(package)
}

/// Packs the module that the demo built.
pub fn pack_for_demo() -> StepResult<PathBuf> {
    pack(Some(&workspace::target().join("optimized/libspanprof_node.so")), "package-for-demo")
}

/// Packs the module of [`build_for_tests`], for tests of the package itself.
pub fn pack_for_tests() -> StepResult<PathBuf> {
    pack(Some(&workspace::root().join("bindings-node").join(PREBUILD)), "dist-for-tests")
}

/// The package with a module in the profile of the tests and the feature `record-stacks`.
pub fn pack_for_recording() -> StepResult<PathBuf> {
    ProcessStep::cargo("build the module that records")
        .args(["build", "--locked", "-p", "spanprof-node", "--features", "record-stacks"])
        .run()?;
    pack(Some(&workspace::target().join("debug/libspanprof_node.so")), "dist-for-recording")
}

/// Packs the package into a directory below the target directory: with the module of this machine, or with the packages of all platforms
/// as optional dependencies.
fn pack(library: Option<&Path>, directory: &str) -> StepResult<PathBuf> {
    let staged = scratch::empty(STAGED)?;
    let root = workspace::root();
    for part in ["lib/", "types/", "README.md"] {
        git::copy(&format!("bindings-node/{part}"), &staged.join(part))?;
    }
    copy(&root.join("LICENSE"), &staged.join("LICENSE"))?;
    if let Some(library) = library {
        third_party::write(&["spanprof-node"], &staged.join(third_party::FILE))?;
        copy(library, &staged.join(PREBUILD))?;
    }
    let platforms = if library.is_some() { &[][..] } else { &Target::ALL };
    let manifest = scratch::read(&root.join("bindings-node/package.json"))?;
    scratch::write(&staged.join("package.json"), &published_manifest(&manifest, REPOSITORY, platforms)?)?;
    npm_pack(&staged, directory)
}

/// Packs the files of a package into a directory below the target directory.
fn npm_pack(staged: &Path, directory: &str) -> StepResult<PathBuf> {
    // npm packs the modes of the files, which depend on the umask of the clone and of the build.
    for file in artifact::files_below(staged) {
        std::fs::set_permissions(&file, Permissions::from_mode(0o644))
            .map_err(|error| StepFailure::new("pack", format!("{}: {error}", file.display())))?;
    }
    let dist = workspace::target().join(directory);
    std::fs::create_dir_all(&dist).map_err(|error| StepFailure::new("pack", format!("{}: {error}", dist.display())))?;
    let output = runtimes::npm("pack")
        .args(["pack", "--ignore-scripts", "--silent", "--pack-destination"])
        .arg(&dist)
        .in_directory(staged)
        .capture()?;
    Ok(dist.join(output.lines().last().unwrap_or_default().trim()))
}

/// The manifest of a package: without the scripts of a clone, since npm asks before it runs those of a dependency, and without
/// the dependencies of the tests, with the address of the repository if it is known, and with the packages of `platforms`.
fn published_manifest(manifest: &str, repository: &str, platforms: &[Target]) -> StepResult<String> {
    let mut members = members_of(manifest)?;
    members.retain(|name, _| name != "scripts" && name != "devDependencies");
    add_repository(&mut members, repository);
    if !platforms.is_empty() {
        let packages = platforms.iter().map(|target| (target.npm_package(), Value::from(VERSION)));
        members.insert("optionalDependencies".to_owned(), Value::Object(packages.collect()));
    }
    serde_json::to_string_pretty(&members).map_err(invalid_manifest)
}

/// The manifest of a platform's package: npm installs it where `os`, `cpu` and `libc` are those of the machine.
fn platform_manifest(manifest: &str, repository: &str, target: Target) -> StepResult<String> {
    let mut members = members_of(manifest)?;
    members.retain(|name, _| ["version", "license", "engines"].contains(&name.as_str()));
    let (platform, cpu, libc) = target.npm();
    members.insert("name".to_owned(), target.npm_package().into());
    members.insert("description".to_owned(), format!("The native module of spanprof for {platform}").into());
    for (name, value) in [("os", "linux"), ("cpu", cpu), ("libc", libc)] {
        members.insert(name.to_owned(), json!([value]));
    }
    members.insert("main".to_owned(), MODULE.into());
    add_repository(&mut members, repository);
    serde_json::to_string_pretty(&members).map_err(invalid_manifest)
}

fn members_of(manifest: &str) -> StepResult<Map<String, Value>> {
    serde_json::from_str(manifest).map_err(invalid_manifest)
}

fn invalid_manifest(error: serde_json::Error) -> StepFailure {
    StepFailure::new("package.json", error.to_string())
}

fn add_repository(members: &mut Map<String, Value>, repository: &str) {
    if !repository.is_empty() {
        let value = json!({"type": "git", "url": format!("git+{repository}.git"), "directory": "bindings-node"});
        members.insert("repository".to_owned(), value);
    }
}

/// Installs the package from source by npm into a clean directory, in the profile of the workspace's tests, and runs it once: as a
/// folder, and as the package that `npm pack` makes of the folder.
pub fn from_source() -> StepResult {
    let directory = scratch::empty("addon-from-source")?;
    scratch::write(&directory.join("package.json"), "{\"private\": true}\n")?;
    artifact::outside_the_workspace(runtimes::npm("npm install ./bindings-node"))
        .arg("install")
        .arg(workspace::root().join("bindings-node"))
        .env("SPANPROF_CARGO_PROFILE", "dev")
        .in_directory(&directory)
        .run()?;
    run_once(&[runtimes::preferred()?], &directory)?;
    let packed = scratch::empty("addon-packed-from-source")?;
    artifact::outside_the_workspace(runtimes::npm("npm pack, in bindings-node"))
        .args(["pack", "--silent", "--pack-destination"])
        .arg(&packed)
        .env("SPANPROF_CARGO_PROFILE", "dev")
        .in_directory(&workspace::root().join("bindings-node"))
        .run()?;
    first_run(&[runtimes::preferred()?], &packed.join(format!("spanprof-{VERSION}.tgz")))
}

/// Installs the package into a clean directory and runs it once on each Node.js.
pub fn first_run(nodes: &[NodeJs], package: &Path) -> StepResult {
    let modules = runtimes::install(package, &[], "addon-first-run")?;
    run_once(nodes, modules.parent().unwrap_or(&modules))
}

/// Runs `first_run.mjs`.
fn run_once(nodes: &[NodeJs], directory: &Path) -> StepResult {
    let program = scratch::read(&workspace::root().join("xtask/addon/first_run.mjs"))?;
    scratch::write(&directory.join("first_run.mjs"), &program)?;
    for node in nodes {
        ProcessStep::new(format!("first run on Node.js {}", node.version), &node.program)
            .arg("first_run.mjs")
            .in_directory(directory)
            .time_limit(Duration::from_secs(120))
            .run()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_manifest_has_no_scripts() {
        let manifest = r#"{"name": "spanprof", "scripts": {"prepare": "node x"}, "devDependencies": {"a": "1"},
            "exports": {"types": "./a.d.ts", "import": "./a.mjs"}}"#;
        let published: String = published_manifest(manifest, "", &[]).unwrap().split_whitespace().collect();
        // The first condition that applies wins, so their order stays.
        assert_eq!(published, r#"{"name":"spanprof","exports":{"types":"./a.d.ts","import":"./a.mjs"}}"#);
        let published = published_manifest(manifest, "https://example.org/x", &[Target::Arm64Musl]).unwrap();
        assert!(published.contains("git+https://example.org/x.git"), "{published}");
        assert!(published.contains(&format!(r#""spanprof-linux-arm64-musl": "{VERSION}""#)), "{published}");
    }

    #[test]
    fn the_package_of_a_platform_states_system_processor_and_libc() {
        let manifest =
            r#"{"name": "spanprof", "version": "1.2.3", "scripts": {"prepare": "node x"}, "main": "./lib/index.js"}"#;
        let text = platform_manifest(manifest, "", Target::Arm64).unwrap();
        let platform: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            platform,
            json!({"name": "spanprof-linux-arm64", "version": "1.2.3", "main": "spanprof.node", "os": ["linux"],
                "cpu": ["arm64"], "libc": ["glibc"], "description": "The native module of spanprof for linux-arm64"})
        );
    }
}
