//! Arguments of verbs that the languages read too.

use clap::Args;

/// Versions of the runtimes that a verb runs on; the installed ones by default.
#[derive(Debug, Args)]
pub struct RuntimeArguments {
    /// versions of CPython, as 3.9,3.13
    #[arg(long, value_name = "VERSION", value_delimiter = ',')]
    pub python: Vec<String>,
    /// majors of Node.js, as 18,24
    #[arg(long, value_name = "VERSION", value_delimiter = ',')]
    pub node: Vec<u32>,
    /// versions of Java, as 17,25
    #[arg(long, value_name = "VERSION", value_delimiter = ',')]
    pub java: Vec<u32>,
}

/// suites against real programs, services and frameworks
///
/// collector  the OpenTelemetry Collector, built from its Go modules: every transport, read back and compared
/// pyroscope  Pyroscope 1.21, built from its Go module: series, labels, spans and totals, directly and through the Collector
/// pprof      files read back by google/pprof, built from its Go module
/// serve      the page of `spanprof serve` in headless Chromium
/// contention CPU time of phases beside busy processes, under a quota, beside a real-time process; CI runs a short form
/// faults     each system call of the profiler fails, in the languages of `--cell`; CI runs a sample; x86-64
/// outage     receivers that refuse, discard, never respond, reset: the service must be unaffected; its disk buffer complete
/// governor   the overhead budget in a cgroup of 0.1 CPU with 400 threads; needs the right to create a cgroup
/// python     stress per CPython and per clock; the package's suites on 3.14 and 3.15, from Debian's packages
/// node       stress on Node.js 18 to 26 from npm
/// java       stress with each collector, pauses of the VM, on every installed JDK and 21 from PyPI; stress on 8 and 11 by `--java 8,11`
/// field      frameworks and programs of production, each compared with a run without spanprof
/// deploy     the files of examples/deploy in namespaces, with the layout, user, variables and limits that they state; needs root
/// platforms  first programs on musl in Alpine's root, and on arm64 in emulation and in a virtual machine with its own kernel; programs
///            on PyPy, a free-threaded CPython, Bun and Deno; needs root, qemu-img, qemu-user-static and qemu-system-arm
/// system-calls  traces of programs with and without spanprof, compared with SECURITY.md; needs strace
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct LiveArguments {
    /// suites, all by default
    pub names: Vec<String>,
    /// seconds of stress per cell of `python`, `node`, `java` and `rust` (60), of load of `outage` (30), of each list of `faults`
    #[arg(long)]
    pub seconds: Option<u64>,
    #[command(flatten)]
    pub runtimes: RuntimeArguments,
    /// clocks of `python`
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "thread_timer,perf")]
    pub clock: Vec<String>,
    /// forked processes of `python`
    #[arg(long, default_value_t = 1000)]
    pub forks: u64,
    /// restarts of `python`
    #[arg(long, default_value_t = 1000)]
    pub cycles: u64,
    /// `python`, `node` and `java`: records the stacks that the tests of the walk replay instead; `platforms`: those of Node.js on arm64
    #[arg(long)]
    pub record: bool,
    /// the one shape to record of `node`, `java` and `platforms`
    #[arg(long, value_name = "NAME")]
    pub shape: Option<String>,
    /// cells of `field`, `deploy`, `platforms` and `python` (stress, forks, cycles, suites, frameworks), languages of `faults`
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub cell: Vec<String>,
    /// settings of the programs of `field`: defaults; timer (clock=thread_timer); all (profiles=all, sample_rate=1000);
    /// all-timer (both)
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "defaults")]
    pub variant: Vec<String>,
    /// `field` and `deploy`: the packages in target/dist, as `wheel`, `addon` and `jar` built them
    #[arg(long)]
    pub release: bool,
}

impl LiveArguments {
    /// Whether a cell is chosen: all are, by default.
    pub fn has_cell(&self, name: &str) -> bool {
        self.cell.is_empty() || self.cell.iter().any(|cell| cell == name)
    }
}
