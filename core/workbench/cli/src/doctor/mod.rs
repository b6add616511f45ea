//! The checks of `spanprof doctor`: what changes a profile on this machine. Each check is an observation: a call that was tried, or a
//! file of the kernel. The clock is chosen by the profiler's own code (`spanprof-os`), and the receivers are
//! those of its configuration (`spanprof-config`). Not here: flags and output (`verbs::doctor`).

#[cfg(target_os = "linux")]
mod configuration;
#[cfg(target_os = "linux")]
mod directories;
#[cfg(target_os = "linux")]
mod receiver;
#[cfg(target_os = "linux")]
mod system;

use spanprof_answers::failure::Failure;

/// What a check means for a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckState {
    /// Nothing to do.
    Ok,
    /// A profile is taken, with less detail or safety than possible.
    Limited,
    /// No profile is taken, or it is not delivered.
    Problem,
}

impl CheckState {
    /// The word in the output.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Problem => "problem",
        }
    }
}

/// One check with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DoctorCheck {
    /// Name, one word.
    pub check: &'static str,
    pub state: CheckState,
    /// The observed value.
    pub found: String,
    /// Its effect on a profile.
    pub meaning: String,
    /// The command or setting that changes it; empty if there is nothing to do.
    pub action: String,
}

impl DoctorCheck {
    fn ok(check: &'static str, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        let (found, meaning) = (found.into(), meaning.into());
        Self { check, state: CheckState::Ok, found, meaning, action: String::new() }
    }

    fn limited(
        check: &'static str,
        found: impl Into<String>,
        meaning: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        let (found, meaning, action) = (found.into(), meaning.into(), action.into());
        Self { check, state: CheckState::Limited, found, meaning, action }
    }

    fn problem(
        check: &'static str,
        found: impl Into<String>,
        meaning: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        Self { state: CheckState::Problem, ..Self::limited(check, found, meaning, action) }
    }
}

/// The checks, with the receiver `endpoint` instead of the configured ones.
///
/// # Errors
/// When `endpoint` is not an address.
#[cfg(target_os = "linux")]
pub(crate) fn checks(endpoint: Option<&str>) -> Result<Vec<DoctorCheck>, Failure> {
    let config = configuration::load(endpoint)?;
    let mut checks = system::checks(&config);
    checks.extend(directories::checks(&config));
    checks.extend(configuration::checks(&config));
    checks.extend(receiver::checks(&config));
    Ok(checks)
}

/// Elsewhere the packages install and do nothing.
#[cfg(not(target_os = "linux"))]
pub(crate) fn checks(_endpoint: Option<&str>) -> Result<Vec<DoctorCheck>, Failure> {
    let found = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let meaning = "no profile is taken: the profiler runs on Linux x86-64 only";
    Ok(vec![DoctorCheck::problem("kernel", found, meaning, "run the program and `spanprof doctor` on Linux")])
}
