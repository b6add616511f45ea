//! `spanprof top --live`: the table of `top`, drawn again every two seconds until `q` or Ctrl-C. Queries run on a thread of their own,
//! so that keys and signals are answered at once. The terminal is restored when the screen is dropped, by a panic too.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use rustix::termios::{self, LocalModes, OptionalActions, Termios};

use super::serve::stop_signal;
use super::table::Rows;
use super::top::{self, TopArguments};
use crate::answers::top::table_text;
use crate::answers::TerminalLayout;
use crate::failure::{Failure, EXIT_USAGE};
use crate::{output, terminal};

const INTERVAL: Duration = Duration::from_secs(2);
/// Range without `--from`: the table follows the program.
const DEFAULT_FROM: &str = "-1m";
/// Lines beside the rows: title, totals, headings, number of other rows.
const OTHER_LINES: usize = 5;
/// Ctrl-C, which is no signal while the terminal passes keys on.
const CTRL_C: u8 = 3;

/// The alternate screen without cursor, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

enum LiveEvent {
    /// The text of a query.
    Table(Result<String, Failure>),
    Stop,
}

pub(crate) fn run(given: &TopArguments) -> Result<i32, Failure> {
    let refused = |reason: &str, remedy: &str| Err(Failure::usage(format!("--live {reason}")).hint(remedy));
    if !terminal::is_terminal() || !io::stdin().is_terminal() {
        return refused("needs a terminal", "`spanprof top` without it prints the table once");
    }
    if given.table.json {
        return refused("and --json are contradictory", "`spanprof top --json` prints the table once");
    }
    let mut given = given.clone();
    given.read.filter.from.get_or_insert_with(|| DEFAULT_FROM.to_owned());
    let range = given.read.filter.from.clone().unwrap_or_default();
    let title = format!("{}, from {range}; q ends", given.read.sources.join(", "));
    let (events, received) = mpsc::channel();
    let screen = LiveScreen::enter()?;
    watch_keys(events.clone());
    watch_signals(events.clone())?;
    thread::spawn(move || {
        while events.send(LiveEvent::Table(queried(&given))).is_ok() {
            thread::sleep(INTERVAL);
        }
    });
    screen.draw(&format!("{title}\n\n"));
    loop {
        match received.recv() {
            Ok(LiveEvent::Table(Ok(text))) => screen.draw(&format!("{title}\n\n{text}")),
            // The same at each repetition.
            Ok(LiveEvent::Table(Err(failure))) if failure.exit_code == EXIT_USAGE => return Err(failure),
            Ok(LiveEvent::Table(Err(failure))) => screen.draw(&format!("{title}\n\n{failure}\n")),
            Ok(LiveEvent::Stop) | Err(_) => return Ok(0),
        }
    }
}

fn queried(given: &TopArguments) -> Result<String, Failure> {
    let rows = terminal::size().map_or(usize::MAX, |(_, rows)| rows.saturating_sub(OTHER_LINES).max(1));
    let table = top::table(given)?;
    let (are_types, limit) = (given.table.by == Rows::Type, given.table.limit.min(rows));
    Ok(table_text(&table, are_types, limit, TerminalLayout::of_stdout()))
}

/// Stops at `q`, Ctrl-C and the end of the input.
fn watch_keys(events: Sender<LiveEvent>) {
    thread::spawn(move || {
        let keys = io::stdin().lock().bytes();
        let _ = keys.map_while(Result::ok).find(|key| matches!(*key, b'q' | b'Q' | CTRL_C));
        let _ = events.send(LiveEvent::Stop);
    });
}

fn watch_signals(events: Sender<LiveEvent>) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    thread::spawn(move || {
        runtime.block_on(stop_signal());
        let _ = events.send(LiveEvent::Stop);
    });
    Ok(())
}

/// The terminal while it shows the table.
struct LiveScreen {
    before: Termios,
}

impl LiveScreen {
    fn enter() -> Result<Self, Failure> {
        let failed = |error: rustix::io::Errno| Failure::new(format!("cannot change the terminal: {error}"));
        let before = termios::tcgetattr(io::stdin()).map_err(failed)?;
        let mut live = before.clone();
        live.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &live).map_err(failed)?;
        output::silence_notes(true);
        output::try_print(ENTER);
        Ok(Self { before })
    }

    /// Overwrites the screen: each line, and what was below.
    fn draw(&self, text: &str) {
        let (columns, rows) = terminal::size().unwrap_or((usize::MAX, usize::MAX));
        let mut frame = String::from("\x1b[H");
        for line in text.lines().take(rows.saturating_sub(1)) {
            // Lines of the table fit already, and contain styles.
            let line = if line.contains('\x1b') { line.to_owned() } else { crate::answers::cut_end(line, columns) };
            frame += &format!("{line}\x1b[K\r\n");
        }
        frame += "\x1b[J";
        output::try_print(&frame);
    }
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        output::silence_notes(false);
    }
}
