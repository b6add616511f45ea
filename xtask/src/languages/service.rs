//! The benchmark of a web service, the same for every language: `xtask/bench/service/service.py` loads the services of a language,
//! one per profiler. Called by the benchmarks of each language.

use std::path::Path;

use crate::scratch;
use crate::step::{ProcessStep, StepResult};

/// A service under one profiler.
pub struct MeasuredService {
    /// Name of its row, and last argument of its command.
    pub profiler: &'static str,
    /// The command; `service.py` adds the address of a receiver and the seconds of a window.
    pub command: Vec<String>,
}

impl MeasuredService {
    /// The command followed by the name.
    pub fn new(profiler: &'static str, command: &[&str]) -> Self {
        let words = command.iter().copied().chain([profiler]);
        Self { profiler, command: words.map(str::to_owned).collect() }
    }
}

/// Runs the benchmark `name` by the given Python; the first service is the one without a profiler.
pub fn measure(name: &str, python: &Path, services: &[MeasuredService], short: bool) -> StepResult<String> {
    let file = scratch::empty(&format!("bench-{name}"))?.join("services.json");
    // An array, since an object of serde_json has no order.
    let commands: Vec<_> = services.iter().map(|service| (&service.profiler, &service.command)).collect();
    scratch::write(&file, &serde_json::json!(commands).to_string())?;
    println!("── bench {name}");
    let step = ProcessStep::new(format!("bench {name}"), python).arg("xtask/bench/service/service.py").arg(&file);
    step.args(short.then_some("--short")).capture()
}
