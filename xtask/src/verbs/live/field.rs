//! Frameworks and production programs under the profiler. In each cell, results and exit status of the program equal those of
//! a run without spanprof, and the profiles contain its functions. Cells are independent; each runs once per variant of
//! settings. The final table has a row per run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::arguments::LiveArguments;
use crate::languages::python::debian;
use crate::languages::python::{self, Venv};
use crate::languages::{java, node};
use crate::scratch;
use crate::step::{all_passed, ProcessStep, StepFailure, StepResult};
use crate::target::Target;
use crate::workspace::{self, VERSION};

/// Prefix of the line with which a program reports its row.
const ROW: &str = "row: ";
/// Default time limit of a cell.
const LIMIT: Duration = Duration::from_secs(300);

/// A program of xtask/live/field with its arguments.
struct FieldCell {
    name: &'static str,
    /// Relative to [`sources`].
    program: &'static str,
    words: &'static [&'static str],
    limit: Duration,
    needs: Requirement,
}

/// Requirement of a cell besides Python.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Requirement {
    Nothing,
    /// `FIELD_NODE` is a Node.js of this major; `NODE_PATH` has the package and the frameworks.
    Node(u32),
    /// `FIELD_JAVA` is a Java, `FIELD_OLD_JAVA` an unsupported one; see [`Preparation::java`] for their class paths.
    Java,
    /// `FIELD_REDIS` is a Redis; `FIELD_REDIS_LIBRARIES` has its libraries unless they are installed.
    Redis,
    /// `FIELD_FAKETIME` is libfaketime; besides, those of `Node`.
    Faketime,
}

const fn cell(name: &'static str, program: &'static str, words: &'static [&'static str]) -> FieldCell {
    FieldCell { name, program, words, limit: LIMIT, needs: Requirement::Nothing }
}

const fn on_node(major: u32, cell: FieldCell) -> FieldCell {
    FieldCell { needs: Requirement::Node(major), ..cell }
}

const fn in_java(name: &'static str, program: &'static str, words: &'static [&'static str]) -> FieldCell {
    FieldCell { needs: Requirement::Java, ..cell(name, program, words) }
}

const fn with_redis(name: &'static str, program: &'static str, words: &'static [&'static str]) -> FieldCell {
    FieldCell { needs: Requirement::Redis, ..cell(name, program, words) }
}

const fn with_faketime(name: &'static str, words: &'static [&'static str]) -> FieldCell {
    FieldCell { needs: Requirement::Faketime, ..cell(name, "clocks/altered_clocks.py", words) }
}

/// For cells of many processes or some hundred threads: minutes on an idle machine, longer on a busy one.
const fn long(cell: FieldCell) -> FieldCell {
    FieldCell { limit: Duration::from_secs(1200), ..cell }
}

/// Major of the Node.js of cells that run on one; `process.execve` came with 23.11.
const NODE: u32 = 24;

const CELLS: &[FieldCell] = &[
    cell("celery-prefork", "queues/celery_pools.py", &["prefork", "main"]),
    cell("celery-prefork-worker-init", "queues/celery_pools.py", &["prefork", "worker_process_init"]),
    cell("celery-threads", "queues/celery_pools.py", &["threads", "main"]),
    cell("celery-gevent", "queues/celery_pools.py", &["gevent", "main"]),
    long(cell("celery-children", "queues/celery_children.py", &["1000"])),
    with_redis("rq-worker", "queues/rq_jobs.py", &["worker"]),
    with_redis("rq-horse", "queues/rq_jobs.py", &["horse"]),
    long(cell("exec-execv-auto", "processes/exec_paths.py", &["execv", "auto", "1000"])),
    long(cell("exec-execv-timer", "processes/exec_paths.py", &["execv", "thread_timer", "1000"])),
    long(cell("exec-execv-perf", "processes/exec_paths.py", &["execv", "perf", "1000"])),
    long(cell("exec-wall", "processes/exec_paths.py", &["wall", "auto", "100"])),
    long(cell("exec-spawnlp", "processes/exec_paths.py", &["spawnlp", "auto", "100"])),
    long(cell("exec-fork", "processes/exec_paths.py", &["fork_exec", "auto", "100"])),
    long(cell("exec-posix-spawn", "processes/exec_paths.py", &["posix_spawn", "auto", "100"])),
    long(cell("exec-subprocess", "processes/exec_paths.py", &["subprocess", "auto", "100"])),
    long(on_node(NODE, cell("exec-node", "processes/exec_node.py", &["100"]))),
    cell("seccomp-python", "seccomp/seccomp.py", &["python"]),
    on_node(NODE, cell("seccomp-node", "seccomp/seccomp.py", &["node"])),
    in_java("seccomp-java", "seccomp/seccomp.py", &["java"]),
    long(cell("seccomp-starts-python", "seccomp/seccomp_starts.py", &["python", "1000"])),
    long(on_node(NODE, cell("seccomp-starts-node", "seccomp/seccomp_starts.py", &["node", "1000"]))),
    long(in_java("seccomp-starts-java", "seccomp/seccomp_starts.py", &["java", "200"])),
    cell("gunicorn-sync", "servers/web_servers.py", &["sync"]),
    cell("gunicorn-gthread", "servers/web_servers.py", &["gthread"]),
    cell("gunicorn-gevent", "servers/web_servers.py", &["gevent"]),
    cell("gunicorn-preload", "servers/web_servers.py", &["preload"]),
    cell("gunicorn-max-requests", "servers/web_servers.py", &["max-requests"]),
    cell("gunicorn-usr2", "servers/web_servers.py", &["usr2"]),
    cell("uvicorn", "servers/web_servers.py", &["uvicorn"]),
    cell("uwsgi", "servers/web_servers.py", &["uwsgi"]),
    cell("django-wsgi", "servers/web_servers.py", &["django-wsgi"]),
    cell("django-asgi", "servers/web_servers.py", &["django-asgi"]),
    cell("fork-pool", "processes/workers.py", &["pool"]),
    cell("fork-daemon", "processes/workers.py", &["daemon"]),
    cell("fork-task-runner", "processes/workers.py", &["task-runner"]),
    cell("fork-data-loader", "processes/workers.py", &["data-loader"]),
    cell("fork-children", "processes/workers.py", &["children"]),
    cell("fork-pid1", "processes/workers.py", &["pid1"]),
    long(cell("nuitka", "processes/compiled.py", &[])),
    long(with_faketime("altered-clocks-python", &["python"])),
    long(with_faketime("altered-clocks-node", &["node"])),
    cell("go-before", "clocks/go_beside.py", &["before"]),
    cell("go-after", "clocks/go_beside.py", &["after"]),
    on_node(20, cell("node-cluster-20", "processes/node_processes.py", &["cluster", "3"])),
    on_node(24, cell("node-cluster-24", "processes/node_processes.py", &["cluster", "3"])),
    on_node(26, cell("node-cluster-26", "processes/node_processes.py", &["cluster", "3"])),
    on_node(20, cell("node-fork-20", "processes/node_processes.py", &["fork", "3"])),
    on_node(24, cell("node-fork-24", "processes/node_processes.py", &["fork", "3"])),
    on_node(26, cell("node-fork-26", "processes/node_processes.py", &["fork", "3"])),
    long(on_node(20, cell("node-workers-20", "node/node_workers.py", &["300"]))),
    long(on_node(24, cell("node-workers-24", "node/node_workers.py", &["300"]))),
    long(on_node(26, cell("node-workers-26", "node/node_workers.py", &["300"]))),
    on_node(20, cell("node-permission-20", "node/node_permission.py", &[])),
    on_node(24, cell("node-permission-24", "node/node_permission.py", &[])),
    on_node(26, cell("node-permission-26", "node/node_permission.py", &[])),
    on_node(NODE, cell("node-bundle-esbuild", "node/node_bundle.py", &["esbuild"])),
    on_node(NODE, cell("node-bundle-webpack", "node/node_bundle.py", &["webpack"])),
    on_node(NODE, cell("node-nest", "servers/web_servers.py", &["nest"])),
    in_java("java-tomcat", "java/java_programs.py", &["tomcat"]),
    in_java("java-spring", "servers/web_servers.py", &["spring"]),
    in_java("java-debugger", "java/java_programs.py", &["debugger"]),
    in_java("java-old-agent", "java/java_programs.py", &["old-agent"]),
    in_java("java-old-extension", "java/java_programs.py", &["old-extension"]),
];

/// Settings of spanprof in every program of a cell, as environment variables. Settings in the code of a program have precedence:
/// the clocks of the cells `exec`.
struct Variant {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

const CLOCK: (&str, &str) = ("SPANPROF_CLOCK", "thread_timer");
const PROFILES: (&str, &str) = ("SPANPROF_PROFILES", "all");
const RATE: (&str, &str) = ("SPANPROF_SAMPLE_RATE", "1000");
/// The cells expect samples at the full rate, which costs more than the budget.
const BUDGET: (&str, &str) = ("SPANPROF_CPU_BUDGET", "0");

/// The default clock is perf where the kernel permits it.
const VARIANTS: [Variant; 4] = [
    Variant { name: "defaults", settings: &[] },
    Variant { name: "timer", settings: &[CLOCK] },
    Variant { name: "all", settings: &[PROFILES, RATE, BUDGET] },
    Variant { name: "all-timer", settings: &[PROFILES, RATE, BUDGET, CLOCK] },
];

/// An environment variable of the programs.
type Variable = (&'static str, OsString);

/// Result of a cell with one variant: a row of the table.
struct CellReport {
    name: &'static str,
    variant: &'static str,
    text: String,
    seconds: u64,
    has_failed: bool,
}

pub fn run(arguments: &LiveArguments) -> StepResult {
    let (chosen, variants) = (chosen(&arguments.cell)?, chosen_variants(&arguments.variant)?);
    let mut preparation = Preparation { is_release: arguments.release, prepared: Vec::new(), modules: None };
    let python = preparation.python()?;
    for cell in &chosen {
        preparation.prepare(cell.needs);
    }
    let runs = chosen.iter().flat_map(|cell| variants.iter().map(move |variant| (cell, variant)));
    let rows: Vec<CellReport> =
        runs.map(|(cell, variant)| cell.run(&python, variant, preparation.variables(cell.needs))).collect();
    println!("\n{}", table(&rows));
    let failed: Vec<_> =
        rows.iter().filter(|row| row.has_failed).map(|row| format!("{} ({})", row.name, row.variant)).collect();
    all_passed("live field", &failed)
}

/// The variants of `--variant`.
fn chosen_variants(names: &[String]) -> StepResult<Vec<&'static Variant>> {
    let find = |name: &String| {
        VARIANTS.iter().find(|variant| variant.name == name).ok_or_else(|| {
            let all = VARIANTS.map(|variant| variant.name).join(", ");
            StepFailure::new("arguments", format!("unknown variant `{name}`; the variants are: {all}"))
        })
    };
    names.iter().map(find).collect()
}

/// The cells of `--cell`; a name also selects the cells that continue it after a hyphen. All without a name.
fn chosen(names: &[String]) -> StepResult<Vec<&'static FieldCell>> {
    let is_selected = |cell: &FieldCell, name: &str| {
        cell.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    if let Some(unknown) = names.iter().find(|name| !CELLS.iter().any(|cell| is_selected(cell, name))) {
        let all: Vec<_> = CELLS.iter().map(|cell| cell.name).collect();
        return Err(StepFailure::new(
            "arguments",
            format!("unknown cell `{unknown}`; the cells are: {}", all.join(", ")),
        ));
    }
    let is_chosen = |cell: &&FieldCell| names.is_empty() || names.iter().any(|name| is_selected(cell, name));
    Ok(CELLS.iter().filter(is_chosen).collect())
}

/// Has only a source distribution, which some machines cannot build.
const UWSGI: &str = "uwsgi==2.0.31";
/// Bundlers and frameworks for Node.js.
const NODE_PACKAGES: [&str; 7] = [
    "esbuild@0.28",
    "webpack@5",
    "@nestjs/core@11",
    "@nestjs/common@11",
    "@nestjs/platform-express@11",
    "reflect-metadata@0.2",
    "rxjs@7",
];
const JAVA_PROGRAMS: [&str; 8] = [
    "Burner.java",
    "Profiled.java",
    "Work.java",
    "java/Debugger.java",
    "java/Site.java",
    "java/Stepped.java",
    "java/TomcatServer.java",
    "servers/SpringService.java",
];

/// The directory of the cells' programs.
fn sources() -> PathBuf {
    workspace::root().join("xtask/live/field")
}

/// Builds the packages and installs the requirements of the programs.
struct Preparation {
    /// Uses the release packages that the verbs `wheel`, `addon` and `jar` built instead of those of the tests: the same code,
    /// optimized.
    is_release: bool,
    /// Environment variables of each prepared requirement, or the reason that it is missing.
    prepared: Vec<(Requirement, StepResult<Vec<Variable>>)>,
    /// The `node_modules` of all Node.js programs.
    modules: Option<PathBuf>,
}

impl Preparation {
    fn prepare(&mut self, needs: Requirement) {
        if self.prepared.iter().all(|(prepared, _)| *prepared != needs) {
            let variables = match needs {
                Requirement::Nothing => Ok(Vec::new()),
                Requirement::Node(major) => self.node(major),
                Requirement::Java => self.java(),
                Requirement::Redis => redis(),
                Requirement::Faketime => self.faketime(),
            };
            self.prepared.push((needs, variables));
        }
    }

    fn variables(&self, needs: Requirement) -> Result<&[Variable], &StepFailure> {
        let entry = self.prepared.iter().find(|(prepared, _)| *prepared == needs);
        entry.map_or(Ok(&[]), |(_, variables)| variables.as_deref())
    }

    /// A Python with the wheel and the frameworks.
    fn python(&self) -> StepResult<PathBuf> {
        let requirements = ["-r", "xtask/live/field/requirements.txt"].map(str::to_owned);
        let venv = Venv::with("field", &python::runtimes::preferred()?, &requirements)?;
        if !venv.program("uwsgi").is_file() {
            if let Err(failure) = venv.pip("build uWSGI", &[UWSGI.to_owned()]) {
                println!("uWSGI: left out: {failure}");
            }
        }
        venv.install_wheel(&if self.is_release {
            released("wheel", &Target::HOST.wheel().1)?
        } else {
            python::package::build_for_tests()?
        })?;
        Ok(venv.python())
    }

    /// Node.js with the package, the bundlers and the frameworks.
    fn node(&mut self, major: u32) -> StepResult<Vec<Variable>> {
        let modules = match &self.modules {
            Some(modules) => modules.clone(),
            None => {
                let package = if self.is_release {
                    released("addon", &format!("spanprof-{VERSION}.tgz"))?
                } else {
                    node::package::build_for_tests()?;
                    node::package::pack_for_tests()?
                };
                self.modules.insert(node::runtimes::install(&package, &NODE_PACKAGES, "live-field-node")?).clone()
            }
        };
        let chosen = node::runtimes::chosen(&[major])?.swap_remove(0);
        Ok(vec![("FIELD_NODE", chosen.program.into()), ("NODE_PATH", modules.into())])
    }

    fn faketime(&mut self) -> StepResult<Vec<Variable>> {
        let library = debian::unpacked("libfaketime")?.join("usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1");
        let mut variables = self.node(NODE)?;
        variables.push(("FIELD_FAKETIME", library.into()));
        Ok(variables)
    }

    /// Java: the JAR in `FIELD_JAR`, the programs in `FIELD_JAVA_PROGRAMS`, their class path in `FIELD_CLASSES`; Tomcat, Spring
    /// Boot and OpenTelemetry's agent in `FIELD_JAVA_LIBRARIES`.
    fn java(&self) -> StepResult<Vec<Variable>> {
        let jar = if self.is_release { released("jar", "0.jar")? } else { java::package::for_tests()? };
        let (programs, libraries) = (scratch::empty("live-field-java")?, scratch::empty("live-field-java-libraries")?);
        let java = java::runtimes::preferred()?;
        let root = workspace::root();
        let sources = sources();
        java::runtimes::maven("libraries of the programs", &java)
            .args(["--quiet", "dependency:copy-dependencies", "--file"])
            .arg(sources.join("pom.xml"))
            .arg(format!("-DoutputDirectory={}", libraries.display()))
            .run()?;
        let compiler = |name: &str| ProcessStep::new(name, java.home.join("bin/javac")).arg("-d").arg(&programs);
        compiler("compile the programs")
            // The libraries refer to annotations and processors that are absent.
            .args(["-Xlint:all,-classfile,-processing", "-Werror", "-cp"])
            .arg(format!("{}:{}/*", jar.display(), libraries.display()))
            .args(JAVA_PROGRAMS.map(|name| sources.join(name)))
            .run()?;
        compiler("compile the program of an old Java")
            .args(["--release", "8", "-Xlint:-options"])
            .arg(root.join("xtask/jar/DeclinedRun.java"))
            .run()?;
        let class_path = format!("{}:{}", jar.display(), programs.display());
        Ok(vec![
            ("FIELD_JAVA", java.home.join("bin/java").into()),
            ("FIELD_OLD_JAVA", java::runtimes::oldest()?.home.join("bin/java").into()),
            ("FIELD_JAR", jar.into()),
            ("FIELD_CLASSES", class_path.into()),
            ("FIELD_JAVA_PROGRAMS", programs.into()),
            ("FIELD_JAVA_LIBRARIES", libraries.into()),
        ])
    }
}

/// A package in target/dist, by the suffix of its name and the verb that builds it.
pub(super) fn released(verb: &str, ending: &str) -> StepResult<PathBuf> {
    let dist = workspace::target().join("dist");
    let files = std::fs::read_dir(&dist).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut matching = files.filter(|path| path.to_string_lossy().ends_with(ending));
    matching.next().ok_or_else(|| {
        let missing =
            StepFailure::new("find the release packages", format!("`{verb}` left no package in {}", dist.display()));
        missing.with_hint(format!("cargo xtask {verb}"))
    })
}

/// The Redis on PATH, or that of Debian.
fn redis() -> StepResult<Vec<Variable>> {
    if ProcessStep::new("find Redis", "redis-server").arg("--version").capture().is_ok() {
        return Ok(vec![("FIELD_REDIS", "redis-server".into())]);
    }
    let root = debian::unpacked("redis-server")?;
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    Ok(vec![("FIELD_REDIS", root.join("usr/bin/redis-server").into()), ("FIELD_REDIS_LIBRARIES", libraries.into())])
}

impl FieldCell {
    fn run(&self, python: &PathBuf, variant: &Variant, variables: Result<&[Variable], &StepFailure>) -> CellReport {
        let (name, variant_name) = (self.name, variant.name);
        let report = |text, seconds, has_failed| CellReport { name, variant: variant_name, text, seconds, has_failed };
        let began = Instant::now();
        let variables = match variables {
            Ok(variables) => variables,
            Err(failure) => {
                return report(format!("FAILED  not prepared: {failure}"), 0, true);
            }
        };
        let mut text = None;
        let step =
            variables.iter().fold(ProcessStep::new(self.name, python), |step, (key, value)| step.env(key, value));
        let step = variant.settings.iter().fold(step, |step, (key, value)| step.env(key, value));
        let outcome = step
            // For the modules that the cells share, which are above their directories.
            .env("PYTHONPATH", sources())
            .arg(sources().join(self.program))
            .args(self.words)
            .time_limit(self.limit)
            .run_with_lines(|line| text = line.strip_prefix(ROW).map(str::to_owned).or(text.take()));
        let has_failed = outcome.is_err() || text.is_none();
        let text = match (text, outcome) {
            (Some(text), _) => text,
            (None, Err(failure)) => format!("FAILED  {failure}"),
            (None, Ok(())) => "FAILED  ended without a row".to_owned(),
        };
        report(text, began.elapsed().as_secs(), has_failed)
    }
}

fn table(rows: &[CellReport]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let line = |row: &CellReport| format!("{:width$}  {:9}  {:>4} s  {}", row.name, row.variant, row.seconds, row.text);
    let lines = rows.iter().map(line);
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> StepResult<Vec<&'static str>> {
        let list: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
        Ok(chosen(&list)?.iter().map(|cell| cell.name).collect())
    }

    #[test]
    fn a_name_selects_its_cell_and_the_cells_that_continue_it() {
        assert_eq!(names(&["celery-prefork"]).unwrap(), ["celery-prefork", "celery-prefork-worker-init"]);
        assert_eq!(names(&["celery-gevent", "celery-threads"]).unwrap(), ["celery-threads", "celery-gevent"]);
        assert!(names(&["celery-pre"]).is_err_and(|failure| failure.to_string().contains("celery-prefork")));
    }

    #[test]
    fn every_cell_has_a_unique_name_and_an_existing_program() {
        for (index, cell) in CELLS.iter().enumerate() {
            assert!(!CELLS[..index].iter().any(|other| other.name == cell.name), "{} is repeated", cell.name);
            let program = sources().join(cell.program);
            assert!(program.is_file(), "{} does not exist", program.display());
        }
    }

    #[test]
    fn every_java_program_exists() {
        assert!(JAVA_PROGRAMS.iter().all(|program| sources().join(program).is_file()));
    }

    #[test]
    fn every_variant_is_selected_by_its_name_and_the_default_exists() {
        let names: Vec<String> = VARIANTS.iter().map(|variant| variant.name.to_owned()).collect();
        let chosen = chosen_variants(&names).unwrap();
        assert_eq!(chosen.iter().map(|variant| variant.name).collect::<Vec<_>>(), names);
        assert!(chosen_variants(&["fast".to_owned()]).is_err_and(|failure| failure.to_string().contains("all-timer")));
    }

    #[test]
    fn the_table_has_a_row_per_cell_and_variant() {
        let row = |name, variant, text: &str| {
            let text = text.to_owned();
            CellReport { name, variant, text, seconds: 7, has_failed: false }
        };
        let text = table(&[row("a", "defaults", "passed  1"), row("longer", "all-timer", "skipped no server")]);
        assert_eq!(text, "a       defaults      7 s  passed  1\nlonger  all-timer     7 s  skipped no server");
    }
}
