//! Step `packages`: the packages in `target/dist` by the rules of PyPI, npm and Maven Central, and as their clients resolve them for each
//! platform. They are built unless those of this commit are there.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::pom;
use crate::languages::java::package::file_name;
use crate::languages::{java, node, python};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::target::{Target, TargetArguments};
use crate::venv::Venv;
use crate::workspace::{self, REPOSITORY, VERSION};
use crate::{artifact, git, interpreters, scratch, third_party};

/// Checks the metadata of wheels and sdists.
const TWINE: &str = "twine==7.0.0";
const UV: &str = "uv==0.13.9";
/// Commit and checksums of the packages in `target/dist`.
const BUILT_FROM: &str = ".built-from";

pub fn dist() -> PathBuf {
    workspace::target().join("dist")
}

pub fn check() -> StepResult {
    let dist = dist();
    let commit = git::commit()?;
    if commit.is_none() || scratch::read(&dist.join(BUILT_FROM)).ok() != Some(identity(&dist, commit.as_deref())?) {
        build()?;
        scratch::write(&dist.join(BUILT_FROM), &identity(&dist, commit.as_deref())?)?;
    } else {
        println!("the packages in {} are of this commit", dist.display());
    }
    python(&dist, REPOSITORY)?;
    npm(&dist.join(format!("spanprof-{VERSION}.tgz")), REPOSITORY)?;
    for target in Target::ALL {
        npm(&dist.join(format!("{}-{VERSION}.tgz", target.npm_package())), REPOSITORY)?;
    }
    maven(&dist, REPOSITORY)?;
    let clients = Venv::with("clients", &interpreters::preferred()?, &[UV.to_owned()])?;
    let resolve = clients.step("resolve the packages as pip, uv and npm do").arg("xtask/release/resolve.py");
    resolve.arg(&dist).args([VERSION, "npm"]).run()
}

/// The packages of all languages.
pub fn build() -> StepResult {
    scratch::empty("dist")?;
    let platforms = TargetArguments::all;
    python::package::run(&platforms())?;
    python::package::source_distribution(&dist())?;
    node::package::run(&platforms())?;
    java::package::run(&java::package::JarArguments::of(platforms()))
}

/// Names of the packages in `dist`, sorted.
pub fn names(dist: &Path) -> Vec<String> {
    let is_package = |name: &String| [".whl", ".tar.gz", ".tgz", ".jar", ".pom"].iter().any(|end| name.ends_with(end));
    let files = artifact::files_below(dist);
    let names = files.iter().filter_map(|path| Some(path.strip_prefix(dist).ok()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names.filter(is_package).collect();
    names.sort();
    names
}

/// SHA-256 checksums, in the format of sha256sum.
pub fn checksums(dist: &Path, names: &[String]) -> StepResult<String> {
    if names.is_empty() {
        Ok(String::new())
    } else {
        ProcessStep::new("checksums", "sha256sum").arg("--").args(names).in_directory(dist).capture()
    }
}

fn identity(dist: &Path, commit: Option<&str>) -> StepResult<String> {
    Ok(format!("{}\n{}", commit.unwrap_or("a changed work tree"), checksums(dist, &names(dist))?))
}

/// `twine check`, and what PyPI shows: license files and the address of the repository.
fn python(dist: &Path, repository: &str) -> StepResult {
    let files: Vec<_> =
        names(dist).into_iter().filter(|name| name.ends_with(".whl") || name.ends_with(".tar.gz")).collect();
    // One wheel without native code, and the sdist.
    let expected = Target::ALL.len() + 2;
    if files.len() != expected {
        let message = format!("expected {expected} wheels and sdists in {}, got: {}", dist.display(), files.join(", "));
        return Err(StepFailure::new("packages for Python", message));
    }
    let python = interpreters::preferred()?;
    let venv = Venv::with("twine", &python, &[TWINE.to_owned()])?;
    ProcessStep::new("twine check", venv.program("twine"))
        .args(["--no-color", "check", "--strict"])
        .args(&files)
        .in_directory(dist)
        .run()?;
    for wheel in files.iter().filter(|name| name.ends_with(".whl")) {
        let script = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); print('\\n'.join(z.namelist()))
[print(z.read(n).decode()) for n in z.namelist() if n.endswith('.dist-info/METADATA')]";
        let text =
            ProcessStep::new("read the wheel", &python.program).args(["-c", script]).arg(dist.join(wheel)).capture()?;
        let mut expected = vec![format!("Version: {VERSION}"), "License-Expression: Apache-2.0".to_owned()];
        expected
            .extend(["LICENSE", third_party::FILE].map(|file| format!("spanprof-{VERSION}.dist-info/licenses/{file}")));
        // Only the fallback wheel has no linked crates.
        expected.retain(|line| !wheel.ends_with("-any.whl") || !line.ends_with(third_party::FILE));
        if !repository.is_empty() {
            expected.push(format!("Project-URL: Source Code, {repository}"));
        }
        missing(wheel, &expected, &text.lines().map(str::to_owned).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// `npm publish --dry-run`: its manifest and the files that the manifest names.
fn npm(package: &Path, repository: &str) -> StepResult {
    let output = node::runtimes::npm("npm publish --dry-run")
        .args(["publish", "--dry-run", "--json", "--ignore-scripts"])
        .arg(package)
        .capture()?;
    let failure = |message: String| StepFailure::new("npm publish --dry-run", message);
    let listing: Value = serde_json::from_str(&output).map_err(|error| failure(format!("not JSON: {error}")))?;
    // By the name of the package, in newer versions of npm.
    let by_name = listing.as_object().and_then(|packages| packages.values().next());
    let listing = if listing["files"].is_array() { &listing } else { by_name.unwrap_or(&Value::Null) };
    if listing["version"] != VERSION {
        return Err(failure(format!("expected version {VERSION}, got {}", listing["version"])));
    }
    let files: Vec<String> = listing["files"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|file| Some(format!("./{}", file["path"].as_str()?)))
        .collect();
    let manifest = ProcessStep::new("read the npm package", "tar")
        .args(["--extract", "--to-stdout", "--file"])
        .arg(package)
        .arg("package/package.json")
        .capture()?;
    let manifest: Value = serde_json::from_str(&manifest).map_err(|error| failure(format!("package.json: {error}")))?;
    let mut expected = vec!["./LICENSE".to_owned(), "./README.md".to_owned()];
    // Crates are linked by the native module, which the package of a platform has.
    expected.extend(manifest.get("cpu").map(|_| format!("./{}", third_party::FILE)));
    for member in ["main", "types", "exports"] {
        files_of(&manifest[member], &mut expected);
    }
    missing("the npm package", &expected, &files)?;
    if manifest.get("scripts").is_some() {
        return Err(failure("expected no member `scripts` in package.json: npm asks before it runs them".to_owned()));
    }
    let actual = manifest["repository"]["url"].as_str().unwrap_or_default();
    match repository.is_empty() || actual == format!("git+{repository}.git") {
        true => Ok(()),
        false => Err(failure(format!("expected git+{repository}.git as repository.url, got `{actual}`"))),
    }
}

/// The files that a member of package.json names.
fn files_of(value: &Value, files: &mut Vec<String>) {
    match value {
        Value::String(file) => files.push(file.clone()),
        Value::Object(members) => members.values().for_each(|member| files_of(member, files)),
        _ => {}
    }
}

/// What Maven Central requires, except for signatures, which need the key of the maintainers.
fn maven(dist: &Path, repository: &str) -> StepResult {
    let text = scratch::read(&dist.join(file_name(".pom")))?;
    let lacks = pom::missing(&text).map_err(|message| StepFailure::new("POM", message))?;
    // Addresses are those of the repository.
    let lacks: Vec<_> = lacks.into_iter().filter(|name| !(repository.is_empty() && name.ends_with("url"))).collect();
    if !lacks.is_empty() {
        let message = format!("{}: Maven Central requires a value of: {}", file_name(".pom"), lacks.join(", "));
        return Err(StepFailure::new("POM", message));
    }
    let listed = |end: &str| -> StepResult<Vec<String>> {
        let jar = java::runtimes::preferred()?.home.join("bin/jar");
        let list = ProcessStep::new("list the JAR", jar)
            .arg("--list")
            .arg("--file")
            .arg(dist.join(file_name(end)))
            .capture()?;
        Ok(list.lines().map(str::to_owned).collect())
    };
    let sources: Vec<String> = git::files()?
        .iter()
        .filter_map(|path| path.strip_prefix("bindings-java/src/main/java/").map(str::to_owned))
        .collect();
    missing(&file_name("-sources.jar"), &sources, &listed("-sources.jar")?)?;
    missing(&file_name("-javadoc.jar"), &["index.html".to_owned()], &listed("-javadoc.jar")?)?;
    let native = "io/spanprof/native";
    let expected = vec!["META-INF/LICENSE".to_owned(), format!("{native}/{}", third_party::FILE)];
    let library = |target: &Target| format!("{native}/{}/libspanprof_java.so.lz4", target.java());
    for (end, is_musl) in [(".jar", false), (java::package::MUSL, true)] {
        let mut expected = expected.clone();
        expected.extend(Target::ALL.iter().filter(|target| target.is_musl() == is_musl).map(library));
        missing(&file_name(end), &expected, &listed(end)?)?;
    }
    println!("Maven Central: the files of io.spanprof still need the signatures of a maintainer");
    Ok(())
}

fn missing(package: &str, expected: &[String], actual: &[String]) -> StepResult {
    let lacks: Vec<&str> = expected.iter().filter(|line| !actual.contains(line)).map(String::as_str).collect();
    if lacks.is_empty() {
        Ok(())
    } else {
        Err(StepFailure::new(format!("contents of {package}"), format!("lacks {}", lacks.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_file_that_a_manifest_names_is_required() {
        let mut files = Vec::new();
        files_of(&json!({".": {"types": "./a.d.ts", "import": "./a.mjs"}, "./x": "./x.js"}), &mut files);
        assert_eq!(files, ["./a.d.ts", "./a.mjs", "./x.js"]);
        let failure = missing("the npm package", &files, &["./a.d.ts".to_owned(), "./x.js".to_owned()]).unwrap_err();
        assert!(failure.to_string().contains("the npm package`: lacks ./a.mjs"), "{failure}");
    }
}
