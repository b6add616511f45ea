//! `cargo xtask jar`: the JAR with its native library, audited, weighed, and run once from a clean folder; and the JUnit suite.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use super::test::at_most;
use super::Verb;
use crate::javas::{self, Java};
use crate::step::{Failure, Outcome, Step};
use crate::tally::Tally;
use crate::venv::Venv;
use crate::{elf, pythons, scratch, workspace};

pub const VERB: Verb = Verb {
    name: "jar",
    usage: "jar",
    about: "builds the JAR into target/dist, audits it and starts it once\n\n\
        One JAR for Java 17 and later with one library, linked by zig against glibc 2.17 and audited symbol by symbol, and\n\
        beside it its sources, its documentation and its POM, as a repository wants them; then run from a clean folder on\n\
        every JDK here, as a library and as an agent.",
    options: &[],
    run: |_| run(),
};

/// Pinned, so that a build today and a build next month are the same build.
const ZIGBUILD: &str = "cargo-zigbuild==0.24.0";
const ZIG: &str = "ziglang==0.17.0";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Oldest glibc the JAR promises to run on.
const GLIBC_FLOOR: (u32, u32) = (2, 17);
/// Budgets of the design, in bytes: the JAR, and its library once it is out of it.
const LARGEST_PACKED: u64 = 4_000_000;
const LARGEST_INSTALLED: u64 = 10_000_000;
/// Maven's own way to take a JAR that is already there.
const INSTALL: &str = "org.apache.maven.plugins:maven-install-plugin:3.1.3:install-file";
const JAR: &str = "spanprof-0.1.0.jar";
/// What a repository wants beside the JAR.
const BESIDE: [&str; 2] = ["spanprof-0.1.0-sources.jar", "spanprof-0.1.0-javadoc.jar"];
const POM: &str = "spanprof-0.1.0.pom";

fn run() -> Outcome {
    let library = release()?;
    audit(&library)?;
    let javas = javas::all()?;
    let dist = workspace::target().join("dist");
    let library_folder = library.parent().unwrap_or(Path::new("."));
    let jar = pack(&javas[0], library_folder, &dist, &["-Prelease"], &BESIDE)?;
    copy(&workspace::root().join("bindings-java/pom.xml"), &dist.join(POM))?;
    sizes(&jar, &library)?;
    for java in &javas {
        first_run(java, &jar)?;
    }
    println!("jar: {}", jar.display());
    Ok(())
}

fn release() -> Outcome<PathBuf> {
    let tools = Venv::with("jar-tools", &pythons::preferred()?, &[ZIGBUILD.to_owned(), ZIG.to_owned()])?;
    let floor = format!("{TARGET}.{}.{}", GLIBC_FLOOR.0, GLIBC_FLOOR.1);
    Step::new("build the release library", tools.program("cargo-zigbuild"))
        .args(["zigbuild", "--release", "--locked", "-p", "spanprof-java", "--target", &floor])
        .env("CARGO_TARGET_DIR", workspace::target())
        .env("CARGO_ZIGBUILD_PYTHON_PATH", tools.python())
        .run()?;
    Ok(workspace::target().join(TARGET).join("release/libspanprof_java.so"))
}

/// The JAR as it is shipped, for benchmarks: neither audited nor run.
pub fn release_jar() -> Outcome<PathBuf> {
    let library = release()?;
    let library_folder = library.parent().unwrap_or(Path::new("."));
    pack(&javas::all()?[0], library_folder, &workspace::target().join("jar-for-bench"), &[], &[])
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
    Err(Failure::new("symbol audit", format!("the JAR promises glibc {floor} but needs {}", list.join(", "))))
}

/// Maven's words for where things are.
fn places(library_folder: &Path, build_folder: &Path) -> [String; 2] {
    [format!("-Dspanprof.library={}", library_folder.display()), format!("-Dspanprof.build={}", build_folder.display())]
}

fn pack(java: &Java, library_folder: &Path, into: &Path, words: &[&str], beside: &[&str]) -> Outcome<PathBuf> {
    let build = scratch::empty("jar-build")?;
    javas::maven("pack the JAR", java)
        .args(["--quiet", "-DskipTests", "package"])
        .args(words)
        .args(places(library_folder, &build))
        .run()?;
    for file in std::iter::once(&JAR).chain(beside) {
        copy(&build.join(file), &into.join(file))?;
    }
    Ok(into.join(JAR))
}

fn copy(from: &Path, to: &Path) -> Outcome {
    let copied = to.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::copy(from, to).map(drop));
    copied.map_err(|error| Failure::new("copy", format!("{} to {}: {error}", from.display(), to.display())))
}

fn sizes(jar: &Path, library: &Path) -> Outcome {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len());
    let (packed, installed) = (length(jar), length(library));
    println!("size: {:.2} MB packed, its library {:.2} MB", packed as f64 / 1e6, installed as f64 / 1e6);
    if packed == 0 || packed > LARGEST_PACKED || installed > LARGEST_INSTALLED {
        let budget =
            format!("{} MB packed, {} MB installed", LARGEST_PACKED / 1_000_000, LARGEST_INSTALLED / 1_000_000);
        return Err(Failure::new("size of the JAR", format!("empty or above the budget of {budget}")));
    }
    Ok(())
}

/// Runs the first minute of a user with the JAR alone: as a library, then as an agent of the same program.
fn first_run(java: &Java, jar: &Path) -> Outcome {
    let folder = scratch::empty("jar-first-run")?;
    let profiles = scratch::empty("jar-first-run-profiles")?;
    Step::new(format!("compile the first run on Java {}", java.version), java.home.join("bin/javac"))
        .args(["-cp"])
        .arg(jar)
        .arg("-d")
        .arg(&folder)
        .arg(workspace::root().join("xtask/jar/FirstRun.java"))
        .run()?;
    let class_path = format!("{}:{}", folder.display(), jar.display());
    let program = |name: &str| {
        let step = Step::new(format!("{name} on Java {}", java.version), java.home.join("bin/java"));
        if java.version >= 22 {
            step.args(["--enable-native-access=ALL-UNNAMED"])
        } else {
            step
        }
    };
    program("first run").args(["-cp", &class_path, "FirstRun", "library"]).arg(&profiles).run()?;
    program("first run as an agent")
        .arg(format!("-javaagent:{}=fileDirectory={}", jar.display(), profiles.display()))
        .args(["-cp", &class_path, "FirstRun", "agent"])
        .arg(&profiles)
        .run()
}

/// The library as the workspace's tests build it, with the door of the conformance suite.
fn library_for_tests() -> Outcome<PathBuf> {
    Step::cargo("build the library for tests")
        .args(["build", "--locked", "-p", "spanprof-java", "--features", "testing"])
        .run()?;
    Ok(workspace::target().join("debug"))
}

/// A JAR with that library, for programs that are tests.
pub fn for_tests() -> Outcome<PathBuf> {
    pack(&javas::all()?[0], &library_for_tests()?, &workspace::target().join("jar-for-tests"), &[], &[])
}

/// The JAR for tests in Maven's local repository, where other packages find it; under a version that is this work tree's own.
pub fn into_local_repository(java: &Java) -> Outcome<String> {
    let jar = for_tests()?;
    let mut place = DefaultHasher::new();
    workspace::root().hash(&mut place);
    let version = format!("0.1.0-tests-{:016x}", place.finish());
    javas::maven("put the JAR into the local repository", java)
        .args(["--quiet", INSTALL, "-DgroupId=io.spanprof", "-DartifactId=spanprof", "-Dpackaging=jar"])
        .arg(format!("-Dversion={version}"))
        .arg(format!("-Dfile={}", jar.display()))
        .run()?;
    Ok(version)
}

/// The JUnit suite on every JDK here, or the classes of it that `words` choose, with the library for tests.
pub fn junit(words: &[&str], tally: &mut Tally) -> Outcome {
    let library = library_for_tests()?;
    let javas = javas::all()?;
    let list: Vec<_> = javas.iter().map(|java| java.version.to_string()).collect();
    println!("Java tests run on JDK {}", list.join(", "));
    for java in &javas {
        let build = scratch::empty(&format!("java-{}", java.version))?;
        let before = *tally;
        let outcome = javas::maven(format!("tests on Java {}", java.version), java)
            .args(["test"])
            .args(words)
            .args(places(&library, &build))
            .within(at_most(10))
            .run_reading(|line| tally.read(line));
        if outcome.is_ok() && tally.passed == before.passed {
            return Err(Failure::new("JUnit", "no test ran"));
        }
        tally.judge(before, outcome);
    }
    Ok(())
}
