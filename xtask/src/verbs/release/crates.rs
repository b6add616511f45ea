//! Step `crates`: packs the crates that are published on crates.io, and compiles what was packed, without the rest of the
//! repository. A crate is published unless its manifest has `publish = false`.

use serde_json::Value;

use super::OpenPoints;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::workspace::{self, REPOSITORY, VERSION};
use crate::{artifact, scratch};

/// Directory of the unpacked crates, below the target directory.
const UNPACKED: &str = "packed-crates";

pub fn check(open: &mut OpenPoints) -> StepResult {
    let names = published()?;
    repository(open)?;
    let packages = names.iter().flat_map(|name| ["-p", name]);
    // The crates are not on crates.io, so cargo cannot compile each alone; `compile` compiles them together.
    ProcessStep::cargo("cargo package")
        .args(["package", "--quiet", "--locked", "--no-verify", "--allow-dirty"])
        .args(packages)
        .env("CARGO_TARGET_DIR", workspace::target())
        .run()?;
    compile(&names)?;
    println!("{} crates: {}", names.len(), names.join(", "));
    Ok(())
}

/// The address of the repository, which every package has.
fn repository(open: &mut OpenPoints) -> StepResult {
    match REPOSITORY {
        "" => {
            open.add("Cargo.toml: set `repository` of [workspace.package], and `dynamic = [\"version\", \"urls\"]` in pyproject.toml");
            Ok(())
        }
        address if address.starts_with("https://") && !address.ends_with('/') => Ok(()),
        address => {
            let message = format!(
                "expected https://…, without a slash at its end, as `repository` of [workspace.package], got {address}"
            );
            Err(StepFailure::new("Cargo.toml", message))
        }
    }
}

fn metadata() -> StepResult<Value> {
    let text = ProcessStep::cargo("cargo metadata")
        .args(["metadata", "--quiet", "--no-deps", "--format-version", "1"])
        .capture()?;
    serde_json::from_str(&text).map_err(|error| StepFailure::new("cargo metadata", error.to_string()))
}

fn published() -> StepResult<Vec<String>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    // `publish = false` is an empty list of registries.
    let published = packages.filter(|package| package["publish"].is_null());
    Ok(published.filter_map(|package| package["name"].as_str().map(str::to_owned)).collect())
}

/// Compiles the packed crates in a workspace of their own, in which they replace those of crates.io.
fn compile(names: &[String]) -> StepResult {
    let directory = scratch::empty(UNPACKED)?;
    let packed = workspace::target().join("package");
    for name in names {
        ProcessStep::new(format!("unpack {name}"), "tar")
            // Without their old times: cargo would take a build of other sources for current.
            .args(["--extract", "--gzip", "--touch", "--directory"])
            .arg(&directory)
            .arg("--file")
            .arg(packed.join(format!("{name}-{VERSION}.crate")))
            .capture()?;
    }
    let members: Vec<String> = names.iter().map(|name| format!("\"{name}-{VERSION}\"")).collect();
    let patches: String = names.iter().map(|name| format!("{name} = {{ path = \"{name}-{VERSION}\" }}\n")).collect();
    let manifest =
        format!("[workspace]\nresolver = \"2\"\nmembers = [{}]\n\n[patch.crates-io]\n{patches}", members.join(", "));
    scratch::write(&directory.join("Cargo.toml"), &manifest)?;
    artifact::copy(&workspace::root().join("Cargo.lock"), &directory.join("Cargo.lock"))?;
    artifact::outside_the_workspace(ProcessStep::cargo("compile the packed crates"))
        .args(["check", "--quiet", "--workspace"])
        .in_directory(&directory)
        .run()
}
