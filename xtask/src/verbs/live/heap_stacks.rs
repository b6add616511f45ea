//! Heap stacks of optimized Rust programs begin in the program, with the type of the object as leaf: at every `opt-level`, with line
//! tables and with full debug information, because the optimizer inlines the allocator hook into the code that allocates.

use serde_json::Value;

use crate::arguments::LiveArguments;
use crate::artifact;
use crate::scratch;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::workspace;

const OPT_LEVELS: [&str; 5] = ["0", "1", "2", "3", "s"];
const DEBUG_INFO: [&str; 2] = ["line-tables-only", "full"];
const SOURCE: &str = "examples/rust-leak/leak.rs";
/// What it allocates.
const TYPES: [&str; 4] = ["Vec<u8>", "String", "HashMap<u32, Vec<u8>>", "VecDeque<Vec<u8>>"];
/// Minimum share of the bytes whose stack begins in this file, with one of these types as leaf. The rest is of the profiler's `flush`
/// and `stop`.
const MIN_SHARE: f64 = 0.99;

pub fn run(_: &LiveArguments) -> StepResult {
    let command = artifact::command_line()?;
    for opt_level in OPT_LEVELS {
        for debug_info in DEBUG_INFO {
            let name = format!("opt-level={opt_level}, debug={debug_info}");
            ProcessStep::cargo(format!("build with {name}"))
                .args(["rustc", "--quiet", "-p", "spanprof", "--example", "rust-leak", "--"])
                .args([format!("-Copt-level={opt_level}"), format!("-Cdebuginfo={debug_info}")])
                .run()?;
            let directory = scratch::empty("live-heap-stacks")?;
            ProcessStep::new(&name, workspace::target().join("debug/examples/rust-leak")).arg(&directory).run()?;
            for sample_type in ["alloc_space", "inuse_space"] {
                let table = ProcessStep::new(format!("top of {name}"), &command)
                    .args(["top", "--json", "--limit", "0", "--type", sample_type])
                    .arg(&directory)
                    .capture()?;
                begins_in_the_program(&format!("{sample_type} with {name}"), &table)?;
            }
        }
    }
    Ok(())
}

fn begins_in_the_program(name: &str, table: &str) -> StepResult {
    let table: Value = serde_json::from_str(table).map_err(|error| StepFailure::new(name, error.to_string()))?;
    let (mut inside, mut typed, mut total, mut others) = (0.0_f64, 0.0_f64, 0.0, Vec::new());
    for row in table["rows"].as_array().into_iter().flatten() {
        let [flat, own] = ["flat", "own"].map(|column| row[column].as_f64().unwrap_or_default());
        let [function, file] = ["function", "file"].map(|column| row[column].as_str().unwrap_or_default());
        let (is_inside, is_typed) = (file.ends_with(SOURCE), file == "<type>" && TYPES.contains(&function));
        total += flat;
        inside += if is_inside { own } else { 0.0 };
        typed += if is_typed { flat } else { 0.0 };
        if flat > 0.0 && !is_typed || own > 0.0 && !is_inside {
            others.push(function.to_owned());
        }
    }
    println!(
        "{name}: {:.2} % begin in the program, {:.2} % have their type",
        100.0 * inside / total,
        100.0 * typed / total
    );
    if inside.min(typed) > MIN_SHARE * total {
        Ok(())
    } else {
        Err(StepFailure::new(name, format!("other functions or types: {others:?}")))
    }
}
