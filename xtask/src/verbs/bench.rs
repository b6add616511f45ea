//! `cargo xtask bench`: the paired benchmarks of core/benches beside the peers, written to core/benches/RESULTS.md. Needs a
//! quiet machine; never part of `test`, since a figure is no yes or no.

use std::path::{Path, PathBuf};

use super::{live, wheel, Verb};
use crate::arguments::{Arguments, Known};
use crate::pythons::{self, Python};
use crate::step::{Failure, Outcome, Step};
use crate::venv::Venv;
use crate::{scratch, workspace};

pub const VERB: Verb = Verb {
    name: "bench",
    usage: "bench [NAME…] [--short]",
    about: "paired benchmarks beside the peers, written to core/benches/RESULTS.md\n\n\
        engine      the engine's calls alone, in Rust\n\
        accuracy    shares and totals of a 50/30/20 mix against thread CPU clocks: four rates, two depths, 1 and 16 threads\n\
        overhead    CPU of the same work with and without: spanprof, pyroscope-io, ddtrace, py-spy; 100 and 1000 Hz\n\
        tags        nanoseconds to enter and leave tag_wrapper\n\
        footprint   start time, resident memory, size of the wheel\n\n\
        --short: a few seconds each, to see that they work; figures of short runs are not written down.\n\
        --python 3.11: the interpreter. The peers are installed by the bench, each into an environment of its own.",
    options: &[Known::Switch("short"), Known::Value("python")],
    run,
};

/// A benchmark: its name, its heading in RESULTS.md, the peers it runs beside.
struct Bench {
    name: &'static str,
    heading: &'static str,
    peers: &'static [(&'static str, &'static str)],
}

/// Pinned, so that a figure can be measured again.
const PEERS: &[(&str, &str)] =
    &[("pyroscope", "pyroscope-io==1.4.0"), ("ddtrace", "ddtrace==4.16.0"), ("py-spy", "py-spy==0.4.3")];

const ALL: [Bench; 5] = [
    Bench { name: "engine", heading: "Rust: calls of the engine", peers: &[] },
    Bench { name: "accuracy", heading: "Python: shares and totals", peers: &[] },
    Bench { name: "overhead", heading: "Python: cost", peers: PEERS },
    Bench { name: "tags", heading: "Python: tag_wrapper", peers: &[] },
    Bench { name: "footprint", heading: "Python: start, memory, size", peers: PEERS },
];

fn run(given: &Arguments) -> Outcome {
    let python = match given.text("python") {
        Some(_) => pythons::chosen(given.text("python"))?.remove(0),
        None => pythons::preferred()?,
    };
    let chosen: Vec<&Bench> = ALL
        .iter()
        .filter(|bench| given.names.is_empty() || given.names.iter().any(|name| name == bench.name))
        .collect();
    if let Some(unknown) = given.names.iter().find(|name| ALL.iter().all(|bench| bench.name != **name)) {
        let known: Vec<_> = ALL.iter().map(|bench| bench.name).collect();
        return Err(Failure::new("bench", format!("no benchmark `{unknown}`; there are: {}", known.join(", "))));
    }
    // What is measured is what is shipped.
    let wheel = wheel::release()?;
    let command = live::command_line()?;
    for bench in chosen {
        let tables = match bench.name {
            "engine" => engine()?,
            _ => measure(bench, &python, &wheel, &command, given.has("short"))?,
        };
        let section = format!("{}\n\n{tables}", conditions(&python)?);
        keep(bench.heading, &section, given.has("short"))?;
    }
    Ok(())
}

/// Writes a section into RESULTS.md; a short run is only shown.
fn keep(heading: &str, section: &str, short: bool) -> Outcome {
    if short {
        println!("\n{section}");
        return Ok(());
    }
    let path = workspace::root().join("core/benches/RESULTS.md");
    let page = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Results\n".to_owned());
    scratch::write(&path, &with_section(&page, heading, section))?;
    println!("written to core/benches/RESULTS.md: {heading}");
    Ok(())
}

/// The engine's own benchmark prints lines; they are kept as they are.
fn engine() -> Outcome<String> {
    let lines =
        Step::cargo("bench engine").args(["bench", "--quiet", "-p", "spanprof", "--bench", "engine"]).capture()?;
    let floor =
        Step::cargo("bench floor").args(["bench", "--quiet", "-p", "spanprof-signal", "--bench", "floor"]).capture()?;
    Ok(format!("```text\n{}\n{}\n```", lines.trim_end(), floor.trim_end()))
}

fn measure(bench: &Bench, python: &Python, wheel: &Path, command: &Path, short: bool) -> Outcome<String> {
    let own = Venv::with("bench-spanprof", python, &[])?;
    own.install_wheel(wheel)?;
    let mut peers: Vec<(String, PathBuf)> = vec![("spanprof".to_owned(), own.python())];
    for (name, package) in bench.peers {
        let venv = Venv::with(&format!("bench-{name}"), python, &[(*package).to_owned()])?;
        peers.push(((*name).to_owned(), venv.python()));
    }
    let peers: Vec<String> = peers.iter().map(|(name, python)| format!("{name}={}", python.display())).collect();
    let folder = scratch::empty(&format!("bench-{}", bench.name))?;
    println!("── bench {}", bench.name);
    let mut step = Step::new(format!("bench {}", bench.name), own.python())
        .arg(format!("core/benches/python/{}.py", bench.name))
        .arg("--command")
        .arg(command)
        .arg("--folder")
        .arg(&folder)
        .arg("--wheel")
        .arg(wheel);
    if short {
        step = step.arg("--short");
    }
    step.args(peers).capture()
}

/// Date, machine and versions: a figure without them is a rumour.
fn conditions(python: &Python) -> Outcome<String> {
    let date = Step::new("date", "date").args(["-u", "+%Y-%m-%d"]).capture()?;
    let kernel = scratch::read(Path::new("/proc/sys/kernel/osrelease"))?;
    let processors = scratch::read(Path::new("/proc/cpuinfo"))?;
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown", |(_, name)| name.trim());
    let count = processors.lines().filter(|line| line.starts_with("processor")).count();
    let commit = Step::new("commit", "git").args(["rev-parse", "--short", "HEAD"]).capture()?;
    Ok(format!(
        "{}, commit {}, CPython {}, {count} × {model}, Linux {}.",
        date.trim(),
        commit.trim(),
        python.full(),
        kernel.trim()
    ))
}

/// The page with one section replaced, or added at its end.
fn with_section(page: &str, heading: &str, text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    let mut placed = false;
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            inside = title.trim() == heading;
            if inside {
                out.push_str(&format!("## {heading}\n\n{}\n\n", text.trim_end()));
                placed = true;
            }
        }
        if !inside {
            out.push_str(line);
            out.push('\n');
        }
    }
    if !placed {
        out = format!("{}\n\n## {heading}\n\n{}\n", out.trim_end(), text.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_its_neighbours_stay() {
        let page = "# Results\n\n## A\n\nold a\n\n## B\n\nold b\n";
        assert_eq!(with_section(page, "A", "new a\n"), "# Results\n\n## A\n\nnew a\n\n## B\n\nold b\n");
    }

    #[test]
    fn a_new_section_is_added_at_the_end() {
        assert_eq!(with_section("# Results\n", "A", "a"), "# Results\n\n## A\n\na\n");
    }
}
