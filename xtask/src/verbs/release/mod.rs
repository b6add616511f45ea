//! `cargo xtask release`: checks that a commit can be released, builds its packages and writes the files beside them. One file
//! per step. Nothing is published here: the workflow of a release does that with what this verb left in `target/dist`.

mod crates;
mod files;
pub mod packages;
mod pom;
mod reproducible;
mod sbom;
pub mod sources;
mod versions;

use clap::ValueEnum;

use crate::step::{StepFailure, StepResult};
use crate::workspace::VERSION;

/// checks and builds what a release publishes, into target/dist; publishes nothing
///
/// Steps: `versions` (one version everywhere, an entry in the changelog), `crates` (cargo package, then a build of what it packed),
/// `sources` (installs from a clone and from packages with sources), `packages` (the wheels, the sdist, the npm package and the JAR by
/// the rules of their registries; built unless target/dist has those of this commit),
/// `files` (SBOM and checksums of the packages in target/dist), `reproducible` (a clone in another directory, with another umask,
/// time zone and encoding, builds files with the same checksums; only on request, since it builds all packages again).
///
/// To make a release:
/// 1. Set `version` in Cargo.toml; the step `versions` names each other place. Rename `## Unreleased` in CHANGELOG.md to
///    `## X.Y.Z (YYYY-MM-DD)`.
/// 2. Run `cargo xtask test --every-version`, `cargo xtask check --deep` and `cargo xtask release --dry-run`.
/// 3. Push the tag `vX.Y.Z`. .github/workflows/release.yml runs `cargo xtask release --tag vX.Y.Z`, publishes to PyPI, npm and
///    crates.io as a trusted publisher, and drafts a release with the files.
/// 4. Sign the JARs and the POM (gpg --armor --detach-sign), upload them to Maven Central, and publish the draft.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, group = clap::ArgGroup::new("mode").required(true))]
pub struct ReleaseArguments {
    /// checks this work tree; what only the maintainers can complete is listed and does not fail
    #[arg(long, group = "mode")]
    dry_run: bool,
    /// the tag of the release, `v0.1.0`; fails while anything is incomplete
    #[arg(long, group = "mode")]
    tag: Option<String>,
    /// runs these steps only
    #[arg(long = "step", value_enum)]
    steps: Vec<ReleaseStep>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReleaseStep {
    Versions,
    Crates,
    Sources,
    Packages,
    Files,
    Reproducible,
}

impl ReleaseStep {
    /// In order; without the one that only runs on request.
    const DEFAULT: [Self; 5] = [Self::Versions, Self::Crates, Self::Sources, Self::Packages, Self::Files];

    fn run(self, open: &mut OpenPoints) -> StepResult {
        match self {
            Self::Versions => versions::check(open),
            Self::Crates => crates::check(open),
            Self::Sources => sources::check(),
            Self::Packages => packages::check(),
            Self::Files => files::write(),
            Self::Reproducible => reproducible::check(),
        }
    }
}

/// What the maintainers have to complete before a release.
#[derive(Debug, Default)]
pub struct OpenPoints(Vec<String>);

impl OpenPoints {
    fn add(&mut self, point: impl Into<String>) {
        self.0.push(point.into());
    }
}

pub fn run(arguments: &ReleaseArguments) -> StepResult {
    if let Some(tag) = arguments.tag.as_deref().filter(|tag| *tag != format!("v{VERSION}")) {
        return Err(StepFailure::new("tag", format!("expected v{VERSION}, the version in Cargo.toml, got {tag}")));
    }
    let mut open = OpenPoints::default();
    let steps: &[ReleaseStep] = if arguments.steps.is_empty() { &ReleaseStep::DEFAULT } else { &arguments.steps };
    for step in steps {
        step.run(&mut open)?;
    }
    for point in &open.0 {
        println!("before a release: {point}");
    }
    match open.0.len() {
        count @ 1.. if arguments.tag.is_some() => {
            Err(StepFailure::new("release", format!("{count} points are incomplete; each is named above")))
        }
        _ => {
            println!("release: the checks passed; nothing was published");
            Ok(())
        }
    }
}
