//! Stress in Node.js programs: every supported major. A crash, a hang or a wrong result fails the suite.

use std::path::PathBuf;
use std::time::Duration;

use super::{package, runtimes};
use crate::arguments::LiveArguments;
use crate::step::{all_passed, ProcessStep, StepResult};

/// Time limit of the program beyond its requested duration.
const GRACE: Duration = Duration::from_secs(180);

pub fn run(given: &LiveArguments) -> StepResult {
    let seconds = given.seconds.unwrap_or(60);
    let modules = installed()?;
    let mut failed = Vec::new();
    for node in runtimes::chosen(&given.runtimes.node)? {
        let name = format!("stress on Node.js {}", node.version);
        let outcome = ProcessStep::new(&name, &node.program)
            .without_cpu_budget()
            .args(["xtask/live/node/stress.js", &seconds.to_string()])
            .env("NODE_PATH", &modules)
            .time_limit(Duration::from_secs(seconds * 4) + GRACE)
            .run();
        if let Err(failure) = outcome {
            eprintln!("{failure}");
            failed.push(name);
        }
    }
    all_passed("live node", &failed)
}

/// Installs the package in the profile of the tests into a separate directory.
pub fn installed() -> StepResult<PathBuf> {
    package::build_for_tests()?;
    runtimes::install(&package::pack_for_tests()?, &[], "live-node")
}
