//! Benchmarks that are the same for every language: a script of xtask/bench/every-language measures programs of one language, one
//! program per profiler. Called by the benchmarks of each language.

use std::path::Path;

use crate::scratch;
use crate::step::{ProcessStep, StepResult};

/// A benchmark of programs.
pub struct ProgramBenchmark {
    /// Name on the command line.
    pub name: &'static str,
    /// The script, without `.py`.
    pub script: &'static str,
    /// The program, in the directory of the language.
    pub program: &'static str,
    /// Names of the rows, and arguments of the program; in a benchmark of cost, the first is without a profiler.
    pub profilers: &'static [&'static str],
}

impl ProgramBenchmark {
    pub fn named(name: &str, all: &'static [Self]) -> Option<&'static Self> {
        all.iter().find(|benchmark| benchmark.name == name)
    }

    /// Runs the script by any Python. `program` returns the command for a profiler, to which its name is added; `command` is
    /// the `spanprof` command, which reads the profiles.
    pub fn measure(
        &self,
        python: &Path,
        command: &Path,
        program: impl Fn(&str) -> Vec<String>,
        short: bool,
    ) -> StepResult<String> {
        let directory = scratch::empty(&format!("bench-{}", self.name))?;
        let file = directory.join("programs.json");
        let with_name = |profiler: &str| [program(profiler), vec![profiler.to_owned()]].concat();
        // An array, since an object of serde_json has no order.
        let commands: Vec<_> = self.profilers.iter().map(|profiler| (profiler, with_name(profiler))).collect();
        scratch::write(&file, &serde_json::json!(commands).to_string())?;
        println!("── bench {}", self.name);
        let step = ProcessStep::new(format!("bench {}", self.name), python);
        // A service is measured with default settings; the others need every sample of their rate or interval.
        let step = if self.script == "service" { step } else { step.without_cpu_budget() };
        step.arg(format!("xtask/bench/every-language/{}.py", self.script))
            .arg("--programs")
            .arg(&file)
            .arg("--command")
            .arg(command)
            .arg("--folder")
            .arg(&directory)
            .args(short.then_some("--short"))
            .capture()
    }
}
