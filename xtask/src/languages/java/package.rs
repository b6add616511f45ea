//! `cargo xtask jar`: builds the JAR with its native libraries, audits it, checks its size, and runs it once from a clean
//! directory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lz4::{BlockSize, ContentChecksum, EncoderBuilder};

use super::jar_modes;
use super::runtimes::{self, Jdk};
use crate::artifact::{self, copy, Glibc};
use crate::scratch;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::target::{Target, TargetArguments};
use crate::third_party;
use crate::workspace::{self, REPOSITORY, VERSION};

/// Oldest supported glibc.
const GLIBC: Glibc = Glibc(2, 17);
/// Maven's goal to install an existing JAR.
const INSTALL: &str = "org.apache.maven.plugins:maven-install-plugin:3.1.3:install-file";
/// Ends of the names of the files that a Maven repository requires beside the JAR.
const BESIDE: [&str; 2] = ["-sources.jar", "-javadoc.jar"];
/// End of the name of the JAR for musl: with those for glibc in one, it would be larger than 12 MB.
pub const MUSL: &str = "-musl.jar";
/// LZ4 levels.
const BEST: u32 = 12;
const FASTEST: u32 = 1;

/// A file of the Maven package.
pub fn file_name(end: &str) -> String {
    format!("spanprof-{VERSION}{end}")
}

/// Arguments of `cargo xtask jar`.
#[derive(Debug, Default, clap::Args)]
pub struct JarArguments {
    #[command(flatten)]
    platforms: TargetArguments,
    /// builds only the native libraries, for Maven: `mvn -f bindings-java install` calls this
    #[arg(long)]
    libraries: bool,
}

impl JarArguments {
    /// The JAR of these platforms.
    pub fn of(platforms: TargetArguments) -> Self {
        Self { platforms, ..Self::default() }
    }
}

/// Builds the release package into `target/dist`, audits it and runs it once.
pub fn run(arguments: &JarArguments) -> StepResult {
    if arguments.libraries {
        return Libraries::from_source().map(drop);
    }
    let (musl, glibc): (Vec<_>, Vec<_>) =
        arguments.platforms.targets().into_iter().partition(|target| target.is_musl());
    let dist = workspace::target().join("dist");
    if !musl.is_empty() {
        let jar = audited_jar(&musl, &scratch::empty("jar-for-musl")?, &[])?;
        copy(&jar, &dist.join(file_name(MUSL)))?;
        println!("jar: {}", dist.join(file_name(MUSL)).display());
    }
    if glibc.is_empty() {
        return Ok(());
    }
    let jar = audited_jar(&glibc, &dist, &BESIDE)?;
    let pom = scratch::read(&workspace::root().join("bindings-java/pom.xml"))?;
    scratch::write(&dist.join(file_name(".pom")), &pom.replace("${spanprof.repository}", REPOSITORY))?;
    println!("jar: {}", jar.display());
    if !glibc.contains(&Target::HOST) {
        return Ok(());
    }
    let jdks = runtimes::all()?;
    for java in &jdks {
        first_run(&jdks[0], java, &jar)?;
        linked_run(java, &jar)?;
    }
    for java in runtimes::old()? {
        first_run(&jdks[0], &java, &jar)?;
    }
    declined_run(&jdks[0], &runtimes::oldest()?, &jar)
}

/// Builds the release JAR of platforms with one C library, and those `beside` it, and audits it.
fn audited_jar(targets: &[Target], into: &Path, beside: &[&str]) -> StepResult<PathBuf> {
    let libraries = Libraries::for_release(targets)?;
    for of_platform in &libraries.of_platforms {
        for library in [&of_platform.whole, &of_platform.opener] {
            artifact::audit("JAR", library, of_platform.target, GLIBC)?;
        }
    }
    let jar = pack(&runtimes::preferred()?, &libraries, into, &["-Prelease"], beside)?;
    artifact::sizes("JAR", &jar, &libraries.files(), targets.len())?;
    Ok(jar)
}

/// The release JAR for benchmarks, neither audited nor run.
pub fn release_jar() -> StepResult<PathBuf> {
    pack(
        &runtimes::preferred()?,
        &Libraries::for_release(&[Target::HOST])?,
        &workspace::target().join("jar-for-bench"),
        &[],
        &[],
    )
}

/// Native libraries of a JAR.
pub struct Libraries {
    of_platforms: Vec<PlatformLibraries>,
    /// Directory with a directory for each platform, in which they are in their packed form.
    directory: PathBuf,
}

/// Native libraries of one platform.
struct PlatformLibraries {
    target: Target,
    whole: PathBuf,
    /// The small library that unpacks `whole`.
    opener: PathBuf,
}

impl Libraries {
    fn for_release(targets: &[Target]) -> StepResult<Self> {
        let of_platform = |target: &Target| {
            let whole = artifact::release_library("spanprof-java", *target, GLIBC, "")?;
            let opener = artifact::release_library("spanprof-java-opener", *target, GLIBC, "")?;
            Ok(PlatformLibraries { target: *target, whole, opener })
        };
        let of_platforms = targets.iter().map(of_platform).collect::<StepResult<_>>()?;
        Self { of_platforms, directory: scratch::empty("java-libraries")? }.packed(BEST)
    }

    /// Those of [`artifact::for_tests`].
    pub fn for_tests() -> StepResult<Self> {
        Self::built(&artifact::for_tests()?, "java-libraries-for-tests").packed(FASTEST)
    }

    /// The libraries that the demo built.
    fn for_demo() -> StepResult<Self> {
        Self::built(&workspace::target().join("optimized"), "java-libraries-for-demo").packed(FASTEST)
    }

    /// Those of a build from source, linked against the glibc of this machine. `SPANPROF_CARGO_PROFILE` selects the cargo
    /// profile, `release` by default.
    fn from_source() -> StepResult<Self> {
        let profile = std::env::var("SPANPROF_CARGO_PROFILE").unwrap_or_else(|_| "release".to_owned());
        ProcessStep::cargo("build the native libraries")
            .args(["build", "--locked", "-p", "spanprof-java", "-p", "spanprof-java-opener", "--profile", &profile])
            .run()?;
        let directory = if profile == "dev" { "debug" } else { &profile };
        Self::built(&workspace::target().join(directory), "java-libraries-from-source").packed(BEST)
    }

    /// The libraries of this machine in `from`, to be packed into a directory of the target directory.
    fn built(from: &Path, into: &str) -> Self {
        let (whole, opener) = (from.join("libspanprof_java.so"), from.join("libspanprof_java_opener.so"));
        let of_platforms = vec![PlatformLibraries { target: Target::HOST, whole, opener }];
        Self { of_platforms, directory: workspace::target().join(into) }
    }

    fn packed(self, level: u32) -> StepResult<Self> {
        third_party::write(&["spanprof-java", "spanprof-java-opener"], &self.directory.join(third_party::FILE))?;
        for PlatformLibraries { target, whole, opener } in &self.of_platforms {
            let directory = self.directory.join(target.java());
            copy(opener, &directory.join("libspanprof_java_opener.so"))?;
            let packed = directory.join("libspanprof_java.so.lz4");
            compress(whole, &packed, level)
                .map_err(|error| StepFailure::new("pack the library", format!("{}: {error}", packed.display())))?;
        }
        Ok(self)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.of_platforms.iter().flat_map(|libraries| [libraries.whole.clone(), libraries.opener.clone()]).collect()
    }
}

/// One LZ4 frame with a checksum; small blocks bound the memory of unpacking in the host process.
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

/// Maven properties of the library and build directories.
pub fn path_properties(libraries: &Libraries, build_folder: &Path) -> [String; 2] {
    [
        format!("-Dspanprof.library={}", libraries.directory.display()),
        format!("-Dspanprof.build={}", build_folder.display()),
    ]
}

fn pack(java: &Jdk, libraries: &Libraries, into: &Path, words: &[&str], beside: &[&str]) -> StepResult<PathBuf> {
    let build = scratch::empty("jar-build")?;
    runtimes::maven("pack the JAR", java)
        .args(["--quiet", "-DskipTests", "package"])
        .args(words)
        .args(path_properties(libraries, &build))
        .run()?;
    for end in std::iter::once(&".jar").chain(beside) {
        copy(&build.join(file_name(end)), &into.join(file_name(end)))?;
        jar_modes::set(&into.join(file_name(end)))?;
    }
    Ok(into.join(file_name(".jar")))
}

/// Builds the JARs from source by Maven, in the profile of the workspace's tests, runs the one with code once, and compiles its sources.
pub fn from_source() -> StepResult {
    let java = runtimes::preferred()?;
    let build = scratch::empty("jar-from-source")?;
    runtimes::maven("mvn -f bindings-java package", &java)
        .args(["--quiet", "-Prelease", "package"])
        .arg(format!("-Dspanprof.build={}", build.display()))
        .env("SPANPROF_CARGO_PROFILE", "dev")
        .run()?;
    first_run(&java, &java, &build.join(file_name(".jar")))?;
    linked_run(&java, &build.join(file_name(".jar")))?;
    compile_sources(&java, &build.join(file_name("-sources.jar")))
}

/// Compiles what the JAR with the sources has, with the POM and nothing else of the repository.
fn compile_sources(java: &Jdk, sources: &Path) -> StepResult {
    let project = scratch::empty("jar-of-sources")?;
    copy(&workspace::root().join("bindings-java/pom.xml"), &project.join("pom.xml"))?;
    let code = scratch::empty("jar-of-sources/src/main/java")?;
    ProcessStep::new("unpack the sources", java.home.join("bin/jar"))
        .args(["--extract", "--file"])
        .arg(sources)
        .in_directory(&code)
        .run()?;
    runtimes::maven("compile the sources of the JAR", java)
        .args(["--quiet", "compile", "-Dspanprof.library=none"])
        .arg(format!("-Dspanprof.build={}", project.join("build").display()))
        .in_directory(&project)
        .run()
}

/// Runs `FirstRun` with the JAR alone: as a library, then as a Java agent, then with the native agent that the JAR unpacks.
pub fn first_run(compiles: &Jdk, java: &Jdk, jar: &Path) -> StepResult {
    let directory = scratch::empty("jar-first-run")?;
    let profiles = scratch::empty("jar-first-run-profiles")?;
    compile_first_run(compiles, jar, &directory)?;
    let class_path = format!("{}:{}", directory.display(), jar.display());
    let program = |name: &str| {
        let step = ProcessStep::new(format!("{name} on Java {}", java.version), java.home.join("bin/java"));
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
    let library = program("unpacking").arg("-cp").arg(jar).args(["io.spanprof.Unpack"]).arg(&directory).capture()?;
    program("first run as an agent of its own")
        .arg(format!("-agentpath:{}=fileDirectory={}", library.trim(), profiles.display()))
        .args(["-cp", &class_path, "FirstRun", "agent"])
        .arg(&profiles)
        .run()
}

/// Compiles `FirstRun` for the oldest supported Java.
pub fn compile_first_run(java: &Jdk, jar: &Path, into: &Path) -> StepResult {
    ProcessStep::new(format!("compile the first run on Java {}", java.version), java.home.join("bin/javac"))
        .args(["--release", "8", "-Xlint:-options", "-cp"])
        .arg(jar)
        .arg("-d")
        .arg(into)
        .arg(workspace::root().join("xtask/jar/FirstRun.java"))
        .run()
}

/// Runs the classes of the last [`first_run`] on an image of the JDK with the JAR's module, which jlink makes.
fn linked_run(java: &Jdk, jar: &Path) -> StepResult {
    let image = scratch::empty("jar-linked-run")?.join("image");
    ProcessStep::new("jlink", java.home.join("bin/jlink"))
        .args(["--add-modules", "io.spanprof", "--module-path"])
        .arg(jar)
        .arg("--output")
        .arg(&image)
        .run()?;
    ProcessStep::new("first run on an image of jlink", image.join("bin/java"))
        .args(["--add-modules", "io.spanprof", "-cp"])
        .arg(workspace::target().join("jar-first-run"))
        .args(["FirstRun", "library"])
        .arg(scratch::empty("jar-first-run-profiles")?)
        .run()
}

/// Runs as the agent of a program on an unsupported VM: the program must run, after one line of output.
pub fn declined_run(compiles: &Jdk, runs: &Jdk, jar: &Path) -> StepResult {
    let directory = scratch::empty("jar-declined-run")?;
    ProcessStep::new("compile the run that is declined", compiles.home.join("bin/javac"))
        .args(["--release", "8", "-Xlint:-options", "-d"])
        .arg(&directory)
        .arg(workspace::root().join("xtask/jar/DeclinedRun.java"))
        .run()?;
    let name = format!("run that is declined on Java {} with {}", runs.version, runtimes::UNSUPPORTED_VM);
    let (status, text) = ProcessStep::new(&name, runs.home.join("bin/java"))
        .arg(runtimes::UNSUPPORTED_VM)
        .arg(format!("-javaagent:{}=sampleRate=99", jar.display()))
        .arg("-cp")
        .arg(&directory)
        .arg("DeclinedRun")
        .capture_any()?;
    let declined = text.lines().filter(|line| line.contains("spanprof: this process is not profiled")).count();
    match status.success() && declined == 1 && text.lines().count() == 2 && text.contains("declined run: ended") {
        true => Ok(()),
        false => {
            Err(StepFailure::new(name, format!("expected one line and the program's own, got ({status}):\n{text}")))
        }
    }
}

/// Packs the JAR with the libraries for tests.
pub fn for_tests() -> StepResult<PathBuf> {
    pack(&runtimes::preferred()?, &Libraries::for_tests()?, &workspace::target().join("jar-for-tests"), &[], &[])
}

/// Packs a JAR with the libraries of another platform in the dev profile.
pub fn of_dev_libraries(target: Target) -> StepResult<PathBuf> {
    let whole = artifact::dev_library("spanprof-java", target)?;
    let opener = artifact::dev_library("spanprof-java-opener", target)?;
    let of_platforms = vec![PlatformLibraries { target, whole, opener }];
    let directory = workspace::target().join("java-libraries-for-platforms");
    let libraries = Libraries { of_platforms, directory }.packed(FASTEST)?;
    pack(&runtimes::preferred()?, &libraries, &workspace::target().join("jar-for-platforms"), &[], &[])
}

/// Packs the JAR with the libraries that the demo built.
pub fn pack_for_demo() -> StepResult<PathBuf> {
    pack(&runtimes::preferred()?, &Libraries::for_demo()?, &workspace::target().join("jar-for-demo"), &[], &[])
}

/// Installs a JAR into Maven's local repository for other packages, with a version that is unique to this work tree.
pub fn into_local_repository(java: &Jdk, jar: &Path) -> StepResult<String> {
    let mut hasher = DefaultHasher::new();
    workspace::root().hash(&mut hasher);
    let version = format!("{VERSION}-local-{:016x}", hasher.finish());
    runtimes::maven("install the JAR into the local repository", java)
        .args(["--quiet", INSTALL, "-DgroupId=io.spanprof", "-DartifactId=spanprof", "-Dpackaging=jar"])
        .arg(format!("-Dversion={version}"))
        .arg(format!("-Dfile={}", jar.display()))
        .run()?;
    Ok(version)
}
