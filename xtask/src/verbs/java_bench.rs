//! The Java part of `cargo xtask bench`: the release JAR, the peers from Maven Central beside it, and the programs of
//! core/benches/java on the JDKs asked for.

use std::path::PathBuf;

use super::jar;
use crate::javas::{self, Java};
use crate::step::{Failure, Outcome, Step};
use crate::{scratch, workspace};

/// Pinned, so that a figure can be measured again: what the programs call them, and where Maven finds them.
const PEERS: [(&str, &str); 2] =
    [("async-profiler", "tools.profiler:async-profiler:4.6"), ("pyroscope", "io.pyroscope:agent:2.9.2")];
/// Maven's own way to fetch a JAR.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy";
/// On which they are measured where nothing else is asked for.
const JDKS: &str = "17,25";

/// What is measured, built and fetched.
pub struct Measured {
    javas: Vec<Java>,
    /// JARs by the names of what is in them.
    jars: Vec<(&'static str, PathBuf)>,
    classes: PathBuf,
}

impl Measured {
    /// Builds the JAR, fetches the peers and compiles the programs; for the JDKs of `--java`.
    pub fn prepare(wanted: Option<&str>) -> Outcome<Self> {
        let javas = javas::chosen(Some(wanted.unwrap_or(JDKS)))?;
        let mut jars = vec![("spanprof", jar::release_jar()?)];
        for (name, coordinates) in PEERS {
            jars.push((name, peer(coordinates)?));
        }
        let classes = compiled(&jars)?;
        Ok(Self { javas, jars, classes })
    }

    /// The versions that a figure is of.
    pub fn runtime(&self) -> String {
        let versions: Vec<_> = self.javas.iter().map(Java::full).collect();
        let peers: Vec<_> = PEERS.iter().map(|(_, coordinates)| coordinates.replace(':', " ")).collect();
        format!("Java {} with G1, beside {}", versions.join(" and "), peers.join(" and "))
    }

    /// Runs one benchmark; what it prints.
    pub fn measure(&self, name: &str, short: bool) -> Outcome<String> {
        let folder = scratch::empty(&format!("bench-{name}"))?;
        println!("── bench {name}");
        let java = self.javas.last().ok_or_else(|| Failure::new("bench", "no JDK"))?;
        let mut step = Step::new(format!("bench {name}"), java.home.join("bin/java"))
            .args(["-Xmx256m", "-cp"])
            .arg(&self.classes)
            .arg(main_class(name))
            .arg("--classes")
            .arg(&self.classes)
            .arg("--folder")
            .arg(&folder);
        for (jar, path) in &self.jars {
            step = step.arg(format!("--{jar}")).arg(path);
        }
        if short {
            step = step.arg("--short");
        }
        let javas: Vec<_> = self.javas.iter().map(|java| format!("{}={}", java.version, java.home.display())).collect();
        step.args(javas).capture()
    }
}

/// `java-cost` is the class `CostBench`.
fn main_class(name: &str) -> String {
    let word = name.trim_start_matches("java-");
    let (first, rest) = word.split_at(1);
    format!("{}{rest}Bench", first.to_uppercase())
}

/// The JAR of a peer.
fn peer(coordinates: &str) -> Outcome<PathBuf> {
    let folder = workspace::target().join("bench-java-peers");
    let file: Vec<_> = coordinates.split(':').skip(1).collect();
    let jar = folder.join(format!("{}.jar", file.join("-")));
    if !jar.is_file() {
        javas::maven(format!("fetch {coordinates}"), &javas::all()?[0])
            .args(["--quiet", COPY])
            .arg(format!("-Dartifact={coordinates}"))
            .arg(format!("-DoutputDirectory={}", folder.display()))
            .run()?;
    }
    Ok(jar)
}

/// The programs, and the tests' reader of pprof.
fn compiled(jars: &[(&str, PathBuf)]) -> Outcome<PathBuf> {
    let classes = scratch::empty("bench-java-classes")?;
    let sources = workspace::root().join("core/benches/java");
    let listed = std::fs::read_dir(&sources).map_err(|error| Failure::new("bench", error.to_string()))?;
    let mut files: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    files.push(workspace::root().join("bindings-java/src/test/java/io/spanprof/ProfileFile.java"));
    let class_path: Vec<_> = jars.iter().map(|(_, jar)| jar.display().to_string()).collect();
    Step::new("compile the benchmarks", javas::all()?[0].home.join("bin/javac"))
        .args([
            "--release",
            "17",
            "-Xlint:all,-try,-processing,-options",
            "-Werror",
            "-proc:none",
            "-cp",
            &class_path.join(":"),
            "-d",
        ])
        .arg(&classes)
        .args(&files)
        .run()?;
    Ok(classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_benchmark_is_called_as_its_class() {
        assert_eq!(main_class("java-cost"), "CostBench");
    }
}
