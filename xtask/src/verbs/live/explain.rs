//! `spanprof explain` on real programs in Python, Node.js and Java: each has one known problem, which a finding must name.
//! One has none, and no finding may be a problem of it.

use std::path::Path;

use serde_json::Value;

use crate::arguments::LiveArguments;
use crate::artifact;
use crate::languages::{java, node, python};
use crate::scratch;
use crate::step::{all_passed, ProcessStep, StepFailure, StepResult};

/// A problem of a program, the rule that finds it, and the functions that its findings name, separated by spaces.
type Problem = (&'static str, &'static str, &'static str);

pub fn run(_: &LiveArguments) -> StepResult {
    let command = artifact::command_line()?;
    let mut failed = Vec::new();

    let venv = python::Venv::with("live", &python::runtimes::preferred()?, &[])?;
    venv.install_wheel(&python::package::build_for_tests()?)?;
    let program = || ProcessStep::new("a Python program", venv.python()).arg("xtask/live/explain/program.py");
    language("python", &command, program, "", &mut failed)?;

    let (node, modules) = (node::runtimes::preferred()?.program, node::live::installed()?);
    let program =
        || ProcessStep::new("a Node.js program", &node).env("NODE_PATH", &modules).arg("xtask/live/explain/program.js");
    language("node", &command, program, "", &mut failed)?;

    let (jdk, classes) = (java::runtimes::preferred()?, java::live::compiled()?);
    let program = || java::live::program(&jdk, "a Java program", &classes).arg("Diagnosed");
    language("java", &command, program, "Diagnosed.", &mut failed)?;
    all_passed("live explain", &failed)
}

fn language(
    language: &str,
    command: &Path,
    program: impl Fn() -> ProcessStep,
    class: &str,
    failed: &mut Vec<String>,
) -> StepResult {
    let problems: &[Problem] = match language {
        "python" => &[
            ("healthy", "", ""),
            ("hot", "hot_code", "price_cart"),
            ("collects", "garbage_collection", "build_graph"),
            ("convoy", "lock_convoy", "reserve"),
            ("blocks", "event_loop_block", "fetch_price"),
            ("waits", "waiting_requests", "call_bank"),
            ("leaks", "memory_growth", "remember"),
            ("slower", "regression", "apply_discounts"),
        ],
        "node" => &[
            ("healthy", "", ""),
            ("hot", "hot_code", "priceCart"),
            ("collects", "garbage_collection", "buildGraph"),
            ("blocks", "event_loop_block", "parseUpload"),
            ("executes", "event_loop_block", "resizeImage"),
            ("hashes", "event_loop_block", "hashPassword"),
            ("parses", "event_loop_block", "readCatalog"),
            ("leaks", "memory_growth", "remember"),
            ("twoLeaks", "memory_growth", "subscribe keepBody"),
        ],
        _ => &[
            ("healthy", "", ""),
            ("hot", "hot_code", "priceCart"),
            ("collects", "garbage_collection", "buildGraph"),
            ("convoy", "lock_convoy", "reserve"),
            ("waits", "waiting_requests", "callBank"),
            ("leaks", "memory_growth", "remember"),
        ],
    };
    for (problem, rule, functions) in problems {
        let directory = scratch::empty(&format!("live-explain-{language}-{problem}"))?;
        match *problem {
            "slower" => {
                for version in ["1.0", "2.0"] {
                    program()
                        .env("OTEL_RESOURCE_ATTRIBUTES", format!("service.version={version}"))
                        .arg(&directory)
                        .arg(format!("slower-{version}"))
                        .run()?;
                }
            }
            _ => program().arg(&directory).arg(problem).run()?,
        }
        let text =
            ProcessStep::new("spanprof explain", command).arg("explain").arg(&directory).arg("--json").capture()?;
        let result: Value = serde_json::from_str(&text)
            .map_err(|error| StepFailure::new("spanprof explain", format!("not JSON: {error}")))?;
        let findings = || result["findings"].as_array().into_iter().flatten();
        let reported: Vec<(String, String)> = findings().map(rule_and_function).collect();
        let expected: Vec<String> = functions.split_whitespace().map(|name| format!("{class}{name}")).collect();
        println!("{language} {problem}: {reported:?}");
        // CPython from 3.11 on has qualified names, such as `leaks.<locals>.remember`.
        let is_found =
            |name: &String| reported.iter().any(|(other, function)| other == rule && function.contains(name));
        let is_right = match expected.is_empty() {
            // On a loaded machine a program has few samples: a limitation.
            true => findings().all(|finding| finding["severity"] != "problem"),
            false => expected.iter().all(is_found),
        };
        if !is_right {
            eprintln!("expected {rule} of {expected:?}");
            failed.push(format!("{language} {problem}"));
        }
    }
    Ok(())
}

/// The rule and the function of a finding.
fn rule_and_function(finding: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&finding["rule"]), text(&finding["function"]["function"]))
}
