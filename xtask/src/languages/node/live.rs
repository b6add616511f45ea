//! Stress in Node.js programs, and requests of the oldest and the newest web frameworks and instrumentations: every supported
//! major. A crash, a hang or a wrong result fails the suite.

use std::path::PathBuf;
use std::time::Duration;

use super::{package, runtimes, suite};
use crate::arguments::LiveArguments;
use crate::deadline::at_most;
use crate::step::{all_passed, ProcessStep, StepResult};

/// Time limit of the program beyond its requested duration.
const GRACE: Duration = Duration::from_secs(180);

/// Web frameworks and OpenTelemetry packages with the oldest major of Node.js that they support: the oldest that we do, those
/// before version 2 of the SDK, the newest.
const FRAMEWORKS: [(&str, u32, &[&str]); 3] = [
    (
        "oldest frameworks",
        18,
        &[
            "@koa/router@8",
            "@opentelemetry/api@1.0.4",
            "@opentelemetry/instrumentation-express@0.27.0",
            "@opentelemetry/instrumentation-fastify@0.26.0",
            "@opentelemetry/instrumentation-http@0.27.0",
            "@opentelemetry/instrumentation-koa@0.27.0",
            "@opentelemetry/instrumentation@0.27.0",
            "@opentelemetry/sdk-trace-node@1.0.1",
            "express@4.17.1",
            "fastify@4.10.0",
            "koa@2.0.0",
        ],
    ),
    (
        "frameworks with SDK 1",
        18,
        &[
            "@koa/router@12",
            "@nestjs/common@10",
            "@nestjs/core@10",
            "@nestjs/platform-express@10",
            "@opentelemetry/api@1.9.0",
            "@opentelemetry/instrumentation-express@0.47.1",
            "@opentelemetry/instrumentation-fastify@0.44.2",
            "@opentelemetry/instrumentation-graphql@0.47.1",
            "@opentelemetry/instrumentation-http@0.57.2",
            "@opentelemetry/instrumentation-koa@0.47.1",
            "@opentelemetry/instrumentation-nestjs-core@0.44.1",
            "@opentelemetry/instrumentation-undici@0.10.1",
            "@opentelemetry/instrumentation@0.57.2",
            "@opentelemetry/sdk-trace-node@1.30.1",
            "express@4",
            "fastify@4",
            "graphql@16",
            "koa@2",
            "reflect-metadata",
            "rxjs",
        ],
    ),
    (
        "newest frameworks",
        20,
        &[
            "@koa/router",
            "@nestjs/common",
            "@nestjs/core",
            "@nestjs/platform-express",
            "@opentelemetry/api",
            "@opentelemetry/instrumentation-express",
            "@opentelemetry/instrumentation-graphql",
            "@opentelemetry/instrumentation-http",
            "@opentelemetry/instrumentation-koa",
            "@opentelemetry/instrumentation-nestjs-core",
            "@opentelemetry/instrumentation-undici@0.33",
            "@opentelemetry/instrumentation",
            "@opentelemetry/sdk-trace-node",
            "express",
            "fastify",
            "graphql",
            "koa",
            "reflect-metadata",
            "rxjs",
        ],
    ),
];

pub fn run(arguments: &LiveArguments) -> StepResult {
    let seconds = arguments.seconds.unwrap_or(60);
    let modules = installed()?;
    let mut failed = Vec::new();
    for node in runtimes::chosen(&arguments.runtimes.node)? {
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
    failed.extend(frameworks(arguments)?);
    all_passed("live node", &failed)
}

/// The tests of requests with other packages than those of the package's own tests; the names of those that failed.
fn frameworks(arguments: &LiveArguments) -> StepResult<Vec<String>> {
    let package = suite::prepared()?;
    let mut failed = Vec::new();
    for (number, (label, oldest, packages)) in FRAMEWORKS.iter().enumerate() {
        let modules = runtimes::install_packages(packages, &format!("live-node-frameworks-{number}"))?;
        for node in runtimes::chosen(&arguments.runtimes.node)?.iter().filter(|node| node.major() >= *oldest) {
            let name = format!("{label} on Node.js {}", node.version);
            let outcome = ProcessStep::new(&name, &node.program)
                .args(["--test", "tests/servers.test.js"])
                .env("SERVER_MODULES", modules.join("servers.js"))
                .in_directory(&package)
                .time_limit(at_most(10))
                .run();
            if let Err(failure) = outcome {
                eprintln!("{failure}");
                failed.push(name);
            }
        }
    }
    Ok(failed)
}

/// Installs the package in the profile of the tests into a separate directory.
pub fn installed() -> StepResult<PathBuf> {
    package::build_for_tests()?;
    runtimes::install(&package::pack_for_tests()?, &[], "live-node")
}
