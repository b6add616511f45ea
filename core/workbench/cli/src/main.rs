//! The `spanprof` binary: calls [`spanprof_cli::run`] with the program's arguments.

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(spanprof_cli::run(&arguments));
}
