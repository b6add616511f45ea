//! The terminal of the command line: its width, and whether text is colored. Called by the verbs and by `output`.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

/// When text is colored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorWhen {
    /// If stdout is a terminal, NO_COLOR is not set and TERM is not `dumb`.
    #[default]
    Auto,
    Always,
    Never,
}

static COLOR_WHEN: OnceLock<ColorWhen> = OnceLock::new();

/// Sets the flag `--color`, which is one for all verbs.
pub fn set_color(when: ColorWhen) {
    let _ = COLOR_WHEN.set(when);
}

/// Whether text on stdout is colored.
pub fn is_colored() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match COLOR_WHEN.get().copied().unwrap_or_default() {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto => {
            is_terminal() && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
        }
    }
}

/// Whether stdout is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal on stdout; `None` for files and pipes, and for a terminal of unknown width.
pub fn columns() -> Option<usize> {
    if !is_terminal() {
        return None;
    }
    let measured = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let variable = || std::env::var("COLUMNS").ok()?.parse().ok();
    measured.filter(|columns| *columns > 0).or_else(variable).filter(|columns| *columns > 0)
}
