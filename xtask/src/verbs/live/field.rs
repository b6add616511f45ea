//! Real frameworks and programs under the profiler. In each cell the program's results and its exit are those of a run without
//! spanprof, and the profiles hold its functions. Cells are independent; a table at the end has a row per cell.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::step::{Failure, Outcome, Step};
use crate::venv::Venv;
use crate::verbs::{addon, jar, wheel};
use crate::{javas, nodes, pythons, scratch, workspace};

/// Prefix of the line with which a program reports its row.
const ROW: &str = "row: ";
/// Limit of a cell that names no other.
const LIMIT: Duration = Duration::from_secs(300);

/// A program of xtask/live/field with its arguments.
struct Cell {
    name: &'static str,
    program: &'static str,
    words: &'static [&'static str],
    limit: Duration,
    needs: Needs,
}

/// What a cell runs beside Python.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// `FIELD_NODE` is a Node.js, which finds the package.
    Node,
    /// `FIELD_JAVA` is a Java, `FIELD_CLASSES` a class path with the JAR and the programs.
    Java,
}

const fn cell(name: &'static str, program: &'static str, words: &'static [&'static str]) -> Cell {
    Cell { name, program, words, limit: LIMIT, needs: Needs::Nothing }
}

/// A thousand programs take half a minute on an idle machine, and minutes beside a busy one.
const fn exec(name: &'static str, words: &'static [&'static str]) -> Cell {
    Cell { limit: Duration::from_secs(600), ..cell(name, "exec_paths.py", words) }
}

const CELLS: &[Cell] = &[
    cell("celery-prefork", "celery_pools.py", &["prefork", "main"]),
    cell("celery-prefork-worker-init", "celery_pools.py", &["prefork", "worker_process_init"]),
    cell("celery-threads", "celery_pools.py", &["threads", "main"]),
    cell("celery-gevent", "celery_pools.py", &["gevent", "main"]),
    exec("exec-execv-auto", &["execv", "auto", "1000"]),
    exec("exec-execv-timer", &["execv", "thread_timer", "1000"]),
    exec("exec-execv-perf", &["execv", "perf", "1000"]),
    exec("exec-wall", &["wall", "auto", "100"]),
    exec("exec-spawnlp", &["spawnlp", "auto", "100"]),
    exec("exec-fork", &["fork_exec", "auto", "100"]),
    exec("exec-posix-spawn", &["posix_spawn", "auto", "100"]),
    exec("exec-subprocess", &["subprocess", "auto", "100"]),
    Cell { needs: Needs::Node, limit: Duration::from_secs(600), ..cell("exec-node", "exec_node.py", &["100"]) },
    cell("seccomp-python", "seccomp.py", &["python"]),
    Cell { needs: Needs::Node, ..cell("seccomp-node", "seccomp.py", &["node"]) },
    Cell { needs: Needs::Java, ..cell("seccomp-java", "seccomp.py", &["java"]) },
    cell("gunicorn-sync", "web_servers.py", &["sync"]),
    cell("gunicorn-gthread", "web_servers.py", &["gthread"]),
    cell("gunicorn-gevent", "web_servers.py", &["gevent"]),
    cell("gunicorn-preload", "web_servers.py", &["preload"]),
    cell("gunicorn-max-requests", "web_servers.py", &["max-requests"]),
    cell("gunicorn-usr2", "web_servers.py", &["usr2"]),
    cell("uvicorn", "web_servers.py", &["uvicorn"]),
    cell("uwsgi", "web_servers.py", &["uwsgi"]),
    cell("fork-pool", "workers.py", &["pool"]),
    cell("fork-daemon", "workers.py", &["daemon"]),
    cell("fork-task-runner", "workers.py", &["task-runner"]),
    cell("fork-data-loader", "workers.py", &["data-loader"]),
    cell("fork-pid1", "workers.py", &["pid1"]),
    cell("go-before", "go_beside.py", &["before"]),
    cell("go-after", "go_beside.py", &["after"]),
    Cell { needs: Needs::Node, ..cell("node-cluster", "node_processes.py", &["cluster", "3"]) },
    Cell { needs: Needs::Node, ..cell("node-fork", "node_processes.py", &["fork", "3"]) },
];

/// Major of the Node.js that runs the programs; `process.execve` came with 23.11.
const NODE: &str = "24";

/// An environment variable of the programs.
type Variable = (&'static str, OsString);

/// A finished cell of the table.
struct Row {
    name: &'static str,
    text: String,
    seconds: u64,
    has_failed: bool,
}

pub fn run(given: &Arguments) -> Outcome {
    let chosen = chosen(given.text("cell"))?;
    let python = environment()?;
    let mut variables = Vec::new();
    if chosen.iter().any(|cell| cell.needs == Needs::Node) {
        variables.extend(node()?);
    }
    if chosen.iter().any(|cell| cell.needs == Needs::Java) {
        variables.extend(java()?);
    }
    let rows: Vec<Row> = chosen.into_iter().map(|cell| cell.run(&python, &variables)).collect();
    println!("\n{}", table(&rows));
    let failed: Vec<_> = rows.iter().filter(|row| row.has_failed).map(|row| row.name).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new("live field", format!("failed: {}", failed.join(", ")))),
    }
}

/// The cells of `--cell NAME,…`; a name also selects the cells that continue it after a hyphen. All without it.
fn chosen(wanted: Option<&str>) -> Outcome<Vec<&'static Cell>> {
    let Some(wanted) = wanted else { return Ok(CELLS.iter().collect()) };
    let names: Vec<&str> = wanted.split(',').map(str::trim).collect();
    let is_meant = |cell: &Cell, name: &str| {
        cell.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    if let Some(unknown) = names.iter().find(|name| !CELLS.iter().any(|cell| is_meant(cell, name))) {
        let known: Vec<_> = CELLS.iter().map(|cell| cell.name).collect();
        return Err(Failure::new("arguments", format!("no cell `{unknown}`; there are: {}", known.join(", "))));
    }
    Ok(CELLS.iter().filter(|cell| names.iter().any(|name| is_meant(cell, name))).collect())
}

/// C source, so that not every machine can build it.
const UWSGI: &str = "uwsgi==2.0.31";

/// A Python with the wheel and the frameworks.
fn environment() -> Outcome<PathBuf> {
    let requirements = ["-r", "xtask/live/field/requirements.txt"].map(str::to_owned);
    let venv = Venv::with("field", &pythons::preferred()?, &requirements)?;
    if !venv.program("uwsgi").is_file() {
        if let Err(failure) = venv.pip("build uWSGI", &[UWSGI.to_owned()]) {
            println!("uWSGI: left out: {failure}");
        }
    }
    // The profile of the tests: the code under test is the released one, unoptimized (docs/decisions/0015).
    venv.install_wheel(&wheel::build_for_tests()?)?;
    Ok(venv.python())
}

/// Node.js with the package, as variables of the programs.
fn node() -> Outcome<Vec<Variable>> {
    addon::build_for_tests()?;
    let modules = nodes::install(&addon::pack_for_tests()?, &[], "live-field-node")?;
    let chosen = nodes::chosen(Some(NODE))?.swap_remove(0);
    Ok(vec![("FIELD_NODE", chosen.program.into()), ("NODE_PATH", modules.into())])
}

/// Java with the JAR, as variables of the programs.
fn java() -> Outcome<Vec<Variable>> {
    let jar = jar::for_tests()?;
    let classes = scratch::empty("live-field-java")?;
    let java = javas::all()?.swap_remove(0);
    let sources = workspace::root().join("xtask/live/field");
    Step::new("compile the programs", java.home.join("bin/javac"))
        .args(["-Xlint:all", "-Werror", "-cp"])
        .arg(&jar)
        .arg("-d")
        .arg(&classes)
        .args(["Burner.java", "Profiled.java"].map(|name| sources.join(name)))
        .run()?;
    let class_path = format!("{}:{}", jar.display(), classes.display());
    Ok(vec![("FIELD_JAVA", java.home.join("bin/java").into()), ("FIELD_CLASSES", class_path.into())])
}

impl Cell {
    fn run(&self, python: &PathBuf, variables: &[Variable]) -> Row {
        let began = Instant::now();
        let mut text = None;
        let step = variables.iter().fold(Step::new(self.name, python), |step, (key, value)| step.env(key, value));
        let outcome = step
            .arg(workspace::root().join("xtask/live/field").join(self.program))
            .args(self.words)
            .within(self.limit)
            .run_reading(|line| text = line.strip_prefix(ROW).map(str::to_owned).or(text.take()));
        let has_failed = outcome.is_err() || text.is_none();
        let text = match (text, outcome) {
            (Some(text), _) => text,
            (None, Err(failure)) => format!("FAILED  {failure}"),
            (None, Ok(())) => "FAILED  ended without a row".to_owned(),
        };
        Row { name: self.name, text, seconds: began.elapsed().as_secs(), has_failed }
    }
}

fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let lines = rows.iter().map(|row| format!("{:width$}  {:>4} s  {}", row.name, row.seconds, row.text));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: &str) -> Vec<&'static str> {
        chosen(Some(wanted)).unwrap().iter().map(|cell| cell.name).collect()
    }

    #[test]
    fn a_name_selects_its_cell_and_the_cells_that_continue_it() {
        assert_eq!(names("celery-prefork"), ["celery-prefork", "celery-prefork-worker-init"]);
        assert_eq!(names("celery-gevent, celery-threads"), ["celery-threads", "celery-gevent"]);
        assert!(chosen(Some("celery-pre")).is_err_and(|failure| failure.to_string().contains("celery-prefork")));
    }

    #[test]
    fn every_cell_has_a_name_of_its_own_and_a_program_that_exists() {
        for (at, cell) in CELLS.iter().enumerate() {
            assert!(!CELLS[..at].iter().any(|other| other.name == cell.name), "{} stands twice", cell.name);
            let program = workspace::root().join("xtask/live/field").join(cell.program);
            assert!(program.is_file(), "{} is not there", program.display());
        }
    }

    #[test]
    fn the_table_has_a_row_per_cell() {
        let row = |name, text: &str| Row { name, text: text.to_owned(), seconds: 7, has_failed: false };
        let text = table(&[row("a", "passed  1"), row("longer", "skipped no server")]);
        assert_eq!(text, "a          7 s  passed  1\nlonger     7 s  skipped no server");
    }
}
