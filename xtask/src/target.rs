//! The platforms that packages are built for, and what each registry calls them. Called by `artifact` and the modules `package` of
//! `languages`.

use std::path::Path;

use clap::ValueEnum;

use crate::step::{ProcessStep, StepFailure, StepResult};

/// Arguments of the verbs that build packages.
#[derive(Debug, Default, clap::Args)]
pub struct TargetArguments {
    /// a platform, repeated for several; that of this machine by default
    #[arg(long = "target", value_enum)]
    targets: Vec<Target>,
}

impl TargetArguments {
    /// Each platform once, in the order of [`Target::ALL`].
    pub fn targets(&self) -> Vec<Target> {
        let chosen = if self.targets.is_empty() { &[Target::HOST][..] } else { &self.targets };
        Target::ALL.into_iter().filter(|target| chosen.contains(target)).collect()
    }

    /// Every platform.
    pub fn all() -> Self {
        Self { targets: Target::ALL.to_vec() }
    }
}

/// A platform of packages, with the name of Rust's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    #[value(name = "x86_64-unknown-linux-gnu")]
    X64,
    #[value(name = "aarch64-unknown-linux-gnu")]
    Arm64,
    #[value(name = "x86_64-unknown-linux-musl")]
    X64Musl,
    #[value(name = "aarch64-unknown-linux-musl")]
    Arm64Musl,
}

impl Target {
    pub const ALL: [Self; 4] = [Self::X64, Self::Arm64, Self::X64Musl, Self::Arm64Musl];
    /// That of this machine: the only one on which packages are built.
    pub const HOST: Self = Self::X64;

    pub fn is_musl(self) -> bool {
        matches!(self, Self::X64Musl | Self::Arm64Musl)
    }

    /// As Rust, PyPI and the JVM call the processor.
    fn processor(self) -> &'static str {
        match self {
            Self::X64 | Self::X64Musl => "x86_64",
            Self::Arm64 | Self::Arm64Musl => "aarch64",
        }
    }

    /// Name in rustc and rustup.
    pub fn triple(self) -> String {
        format!("{}-unknown-linux-{}", self.processor(), if self.is_musl() { "musl" } else { "gnu" })
    }

    /// The platform of wheels, as maturin calls it, and the end of their names, which have every tag of that platform.
    pub fn wheel(self) -> (&'static str, String) {
        match self.is_musl() {
            true => ("musllinux_1_2", format!("musllinux_1_2_{}.whl", self.processor())),
            false => ("manylinux2014", format!("manylinux_2_17_{}.whl", self.processor())),
        }
    }

    /// Name of the platform in npm packages, and their members `cpu` and `libc`.
    pub fn npm(self) -> (String, &'static str, &'static str) {
        let cpu = if self.processor() == "aarch64" { "arm64" } else { "x64" };
        let (end, libc) = if self.is_musl() { ("-musl", "musl") } else { ("", "glibc") };
        (format!("linux-{cpu}{end}"), cpu, libc)
    }

    /// Name of the platform's package in npm.
    pub fn npm_package(self) -> String {
        format!("spanprof-{}", self.npm().0)
    }

    /// Directory of the libraries in the JAR.
    pub fn java(self) -> String {
        format!("linux-{}{}", self.processor(), if self.is_musl() { "-musl" } else { "" })
    }

    /// Compiler flags: a library that musl's loader can open is not linked statically.
    pub fn flags(self) -> &'static str {
        if self.is_musl() {
            "-C target-feature=-crt-static"
        } else {
            ""
        }
    }

    /// Fails with the command that installs it when Rust's standard library for this platform is missing.
    pub fn require_standard_library(self) -> StepResult {
        let triple = self.triple();
        match self.has_standard_library()? {
            true => Ok(()),
            false => {
                let failure = StepFailure::new("toolchain", format!("Rust's standard library for {triple} is missing"));
                Err(failure.with_hint(format!("rustup target add {triple}")))
            }
        }
    }

    /// Installs Rust's standard library for this platform unless it is there.
    pub fn add_standard_library(self) -> StepResult {
        match self.has_standard_library()? {
            true => Ok(()),
            false => ProcessStep::new("add a target", "rustup").args(["target", "add", &self.triple()]).run(),
        }
    }

    fn has_standard_library(self) -> StepResult<bool> {
        let sysroot = ProcessStep::new("rustc --print sysroot", "rustc").args(["--print", "sysroot"]).capture()?;
        Ok(Path::new(sysroot.trim()).join("lib/rustlib").join(self.triple()).is_dir())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_platform_has_the_name_of_its_rust_target() {
        for target in Target::ALL {
            let value = target.to_possible_value().unwrap();
            assert_eq!(value.get_name(), target.triple());
        }
    }

    #[test]
    fn targets_are_those_of_the_arguments_once_and_this_machine_without_any() {
        assert_eq!(TargetArguments::default().targets(), [Target::HOST]);
        let twice = TargetArguments { targets: vec![Target::X64Musl, Target::Arm64, Target::X64Musl] };
        assert_eq!(twice.targets(), [Target::Arm64, Target::X64Musl]);
        assert_eq!(TargetArguments::all().targets(), Target::ALL);
    }

    #[test]
    fn registries_have_their_own_names() {
        assert_eq!(Target::Arm64Musl.wheel(), ("musllinux_1_2", "musllinux_1_2_aarch64.whl".to_owned()));
        assert_eq!(Target::X64.npm(), ("linux-x64".to_owned(), "x64", "glibc"));
        assert_eq!(Target::Arm64Musl.npm(), ("linux-arm64-musl".to_owned(), "arm64", "musl"));
        assert_eq!([Target::X64, Target::Arm64Musl].map(Target::java), ["linux-x86_64", "linux-aarch64-musl"]);
    }
}
