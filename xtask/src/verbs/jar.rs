//! `cargo xtask jar`: the JAR with its native library, audited, weighed, and run once from a clean folder; and the JUnit suite.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lz4::{BlockSize, ContentChecksum, EncoderBuilder};

use super::test::at_most;
use super::Verb;
use crate::artefact::{self, copy, Glibc};
use crate::javas::{self, Java};
use crate::step::{Failure, Outcome, Step};
use crate::tally::Tally;
use crate::{scratch, workspace};

pub const VERB: Verb = Verb {
    name: "jar",
    usage: "jar",
    about: "builds the JAR into target/dist, audits it and starts it once\n\n\
        One JAR for Java 17 and later with one library and the small one that unpacks it, linked by zig against glibc 2.17\n\
        and audited symbol by symbol, and beside it its sources, its documentation and its POM, as a repository wants them;\n\
        then run from a clean folder on every JDK here, as a library and as an agent, and as an agent of a program on Java 11,\n\
        which must run on without a profile.",
    options: &[],
    run: |_| run(),
};

/// Oldest glibc the JAR promises to run on.
const GLIBC: Glibc = Glibc(2, 17);
/// Maven's own way to take a JAR that is already there.
const INSTALL: &str = "org.apache.maven.plugins:maven-install-plugin:3.1.3:install-file";
const JAR: &str = "spanprof-0.1.0.jar";
/// What a repository wants beside the JAR.
const BESIDE: [&str; 2] = ["spanprof-0.1.0-sources.jar", "spanprof-0.1.0-javadoc.jar"];
const POM: &str = "spanprof-0.1.0.pom";
/// How hard the library is packed.
const BEST: u32 = 12;
const FASTEST: u32 = 1;

fn run() -> Outcome {
    let libraries = Libraries::for_release()?;
    for library in [&libraries.whole, &libraries.opener] {
        artefact::audit("JAR", library, GLIBC)?;
    }
    let javas = javas::all()?;
    let dist = workspace::target().join("dist");
    let jar = pack(&javas[0], &libraries, &dist, &["-Prelease"], &BESIDE)?;
    copy(&workspace::root().join("bindings-java/pom.xml"), &dist.join(POM))?;
    artefact::sizes("JAR", &jar, &[libraries.whole, libraries.opener])?;
    for java in &javas {
        first_run(java, &jar)?;
    }
    declined_run(&javas[0], &javas::unsupported()?, &jar)?;
    println!("jar: {}", jar.display());
    Ok(())
}

/// The JAR as it is shipped, for benchmarks: neither audited nor run.
pub fn release_jar() -> Outcome<PathBuf> {
    pack(&javas::all()?[0], &Libraries::for_release()?, &workspace::target().join("jar-for-bench"), &[], &[])
}

/// What travels in a JAR.
struct Libraries {
    whole: PathBuf,
    /// Unpacks the other.
    opener: PathBuf,
    /// With both as they travel.
    folder: PathBuf,
}

impl Libraries {
    fn for_release() -> Outcome<Self> {
        let whole = artefact::release_library("spanprof-java", GLIBC, &[])?;
        let opener = artefact::release_library("spanprof-java-opener", GLIBC, &[])?;
        Self { whole, opener, folder: workspace::target().join("java-libraries") }.packed(BEST)
    }

    /// As the workspace's tests build them, with the door of the conformance suite.
    fn for_tests() -> Outcome<Self> {
        Step::cargo("build the libraries for tests")
            .args(["build", "--locked", "-p", "spanprof-java", "-p", "spanprof-java-opener"])
            .args(["--features", "spanprof-java/testing"])
            .run()?;
        let built = |name: &str| workspace::target().join("debug").join(name);
        let (whole, opener) = (built("libspanprof_java.so"), built("libspanprof_java_opener.so"));
        Self { whole, opener, folder: workspace::target().join("java-libraries-for-tests") }.packed(FASTEST)
    }

    /// Those that the demo built.
    fn for_demo() -> Outcome<Self> {
        let built = |name: &str| workspace::target().join("optimized").join(name);
        let (whole, opener) = (built("libspanprof_java.so"), built("libspanprof_java_opener.so"));
        Self { whole, opener, folder: workspace::target().join("java-libraries-for-demo") }.packed(FASTEST)
    }

    fn packed(self, level: u32) -> Outcome<Self> {
        copy(&self.opener, &self.folder.join("libspanprof_java_opener.so"))?;
        let packed = self.folder.join("libspanprof_java.so.lz4");
        compress(&self.whole, &packed, level)
            .map_err(|error| Failure::new("pack the library", format!("{}: {error}", packed.display())))?;
        Ok(self)
    }
}

/// One LZ4 frame: small blocks, since the program that unpacks them is somebody else's, and a checksum.
fn compress(from: &Path, to: &Path, level: u32) -> io::Result<()> {
    let whole = std::fs::read(from)?;
    let mut encoder = EncoderBuilder::new()
        .level(level)
        .block_size(BlockSize::Max64KB)
        .content_size(whole.len() as u64)
        .checksum(ContentChecksum::ChecksumEnabled)
        .build(Vec::new())?;
    encoder.write_all(&whole)?;
    let (frame, outcome) = encoder.finish();
    outcome.and_then(|()| std::fs::write(to, frame))
}

/// Maven's words for where things are.
fn places(libraries: &Libraries, build_folder: &Path) -> [String; 2] {
    [
        format!("-Dspanprof.library={}", libraries.folder.display()),
        format!("-Dspanprof.build={}", build_folder.display()),
    ]
}

fn pack(java: &Java, libraries: &Libraries, into: &Path, words: &[&str], beside: &[&str]) -> Outcome<PathBuf> {
    let build = scratch::empty("jar-build")?;
    javas::maven("pack the JAR", java)
        .args(["--quiet", "-DskipTests", "package"])
        .args(words)
        .args(places(libraries, &build))
        .run()?;
    for file in std::iter::once(&JAR).chain(beside) {
        copy(&build.join(file), &into.join(file))?;
    }
    Ok(into.join(JAR))
}

/// Runs the first minute of a user with the JAR alone: as a library, then as an agent of the same program, then as the agent
/// that the JAR unpacks.
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
        .run()?;
    let library = program("unpacking").arg("-cp").arg(jar).args(["io.spanprof.Unpack"]).arg(&folder).capture()?;
    program("first run as an agent of its own")
        .arg(format!("-agentpath:{}=fileDirectory={}", library.trim(), profiles.display()))
        .args(["-cp", &class_path, "FirstRun", "agent"])
        .arg(&profiles)
        .run()
}

/// As the agent of a program on a Java that is not supported: the program runs, after one line.
fn declined_run(compiles: &Java, runs: &Java, jar: &Path) -> Outcome {
    let folder = scratch::empty("jar-declined-run")?;
    Step::new("compile the run that is declined", compiles.home.join("bin/javac"))
        .args(["--release", "8", "-Xlint:-options", "-d"])
        .arg(&folder)
        .arg(workspace::root().join("xtask/jar/DeclinedRun.java"))
        .run()?;
    let name = format!("run that is declined on Java {}", runs.version);
    let (status, text) = Step::new(&name, runs.home.join("bin/java"))
        .arg(format!("-javaagent:{}=sampleRate=99", jar.display()))
        .arg("-cp")
        .arg(&folder)
        .arg("DeclinedRun")
        .capture_any()?;
    let declined = text.lines().filter(|line| line.starts_with("spanprof: this process is not profiled")).count();
    match status.success() && declined == 1 && text.lines().count() == 2 && text.contains("declined run: ended") {
        true => Ok(()),
        false => Err(Failure::new(name, format!("expected one line and the program's own, got ({status}):\n{text}"))),
    }
}

/// A JAR with the libraries for tests, for programs that are tests.
pub fn for_tests() -> Outcome<PathBuf> {
    pack(&javas::all()?[0], &Libraries::for_tests()?, &workspace::target().join("jar-for-tests"), &[], &[])
}

/// The JAR with the libraries that the demo built.
pub fn pack_for_demo() -> Outcome<PathBuf> {
    pack(&javas::all()?[0], &Libraries::for_demo()?, &workspace::target().join("jar-for-demo"), &[], &[])
}

/// Puts a JAR into Maven's local repository, where other packages find it; under a version that is this work tree's own.
pub fn into_local_repository(java: &Java, jar: &Path) -> Outcome<String> {
    let mut place = DefaultHasher::new();
    workspace::root().hash(&mut place);
    let version = format!("0.1.0-local-{:016x}", place.finish());
    javas::maven("put the JAR into the local repository", java)
        .args(["--quiet", INSTALL, "-DgroupId=io.spanprof", "-DartifactId=spanprof", "-Dpackaging=jar"])
        .arg(format!("-Dversion={version}"))
        .arg(format!("-Dfile={}", jar.display()))
        .run()?;
    Ok(version)
}

/// The JUnit suite on every JDK here, or the classes of it that `words` choose, with the library for tests.
pub fn junit(words: &[&str], tally: &mut Tally) -> Outcome {
    let libraries = Libraries::for_tests()?;
    let javas = javas::all()?;
    let list: Vec<_> = javas.iter().map(|java| java.version.to_string()).collect();
    println!("Java tests run on JDK {}", list.join(", "));
    for java in &javas {
        let build = scratch::empty(&format!("java-{}", java.version))?;
        let before = *tally;
        let outcome = javas::maven(format!("tests on Java {}", java.version), java)
            .args(["test"])
            .args(words)
            .args(places(&libraries, &build))
            .within(at_most(10))
            .run_reading(|line| tally.read(line));
        if outcome.is_ok() && tally.passed == before.passed {
            return Err(Failure::new("JUnit", "no test ran"));
        }
        tally.judge(before, outcome);
    }
    Ok(())
}
