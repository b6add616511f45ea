//! The `spanprof` binary: [`spanprof_cli::run`] on the program's arguments, nothing else.

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(spanprof_cli::run(&arguments));
}
