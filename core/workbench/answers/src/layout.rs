//! Tables as text. On a terminal their rows fit its width: names are cut in the middle, paths on the left, numbers never. Own
//! functions are bold, libraries dim. In files and pipes nothing is cut.

use anstyle::Style;
use spanprof_profile::code_origin::CodeOrigin;
use spanprof_read::query::FunctionLine;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::function::{function_text, printable};
use crate::short_path::{common_directory, last_components, shortened, ELLIPSIS};
use crate::terminal;

const OWN: Style = Style::new().bold();
const LIBRARY: Style = Style::new().dimmed();
/// Narrower than this, a cell is on a line of its own.
const MIN_CELL: usize = 20;
/// Below this width of the last column, blanks between the numbers are removed.
const COMFORTABLE_CELL: usize = 48;
/// Before a cell on a line of its own.
const CELL_INDENT: usize = 4;

/// How text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalLayout {
    /// Width of the terminal; `None` if nothing is cut.
    pub columns: Option<usize>,
    pub is_colored: bool,
}

impl TerminalLayout {
    /// The layout of stdout.
    pub fn of_stdout() -> Self {
        Self { columns: terminal::columns(), is_colored: terminal::is_colored() }
    }

    /// A function on a line of its own, without line break.
    pub fn function(self, at: &FunctionLine) -> String {
        let mut table = FittingTable::new(self);
        table.function("", 0, at, "");
        table.text().trim_end().to_owned()
    }

    fn styled(self, style: Style, text: &str) -> String {
        if self.is_colored && !text.is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// Rows of numbers, each with a name in the last column.
pub struct FittingTable {
    layout: TerminalLayout,
    rows: Vec<TextRow>,
}

struct TextRow {
    /// The numbers, with the blanks up to the last column.
    numbers: String,
    cell: Cell,
}

enum Cell {
    /// The heading of the last column.
    Heading(String),
    Function {
        depth: usize,
        at: FunctionLine,
        suffix: String,
    },
    /// A part that is never cut, and one that is cut in the middle.
    Text {
        whole: String,
        cut: String,
    },
}

impl FittingTable {
    pub fn new(layout: TerminalLayout) -> Self {
        Self { layout, rows: Vec::new() }
    }

    /// A row of headings.
    pub fn heading(&mut self, numbers: impl Into<String>, name: impl Into<String>) {
        self.rows.push(TextRow { numbers: numbers.into(), cell: Cell::Heading(name.into()) });
    }

    /// A row of a function, indented by its depth.
    pub fn function(&mut self, numbers: impl Into<String>, depth: usize, at: &FunctionLine, suffix: &str) {
        let cell = Cell::Function { depth, at: at.clone(), suffix: suffix.to_owned() };
        self.rows.push(TextRow { numbers: numbers.into(), cell });
    }

    /// A row of a text, of which `whole` is never cut.
    pub fn row(&mut self, numbers: impl Into<String>, whole: impl Into<String>, cut: impl Into<String>) {
        self.rows.push(TextRow { numbers: numbers.into(), cell: Cell::Text { whole: whole.into(), cut: cut.into() } });
    }

    /// The lines of all rows.
    pub fn text(mut self) -> String {
        let Some(columns) = self.layout.columns else { return self.plain() };
        let widest = |rows: &[TextRow]| rows.iter().map(|row| row.numbers.width()).max().unwrap_or(0);
        let deepest = self.rows.iter().map(|row| row.cell.depth()).max().unwrap_or(0);
        if widest(&self.rows) + 2 * deepest + COMFORTABLE_CELL > columns {
            self.remove_common_blanks();
        }
        let of_numbers = widest(&self.rows);
        // Cells that do not fit beside the numbers are below them, in every row.
        let are_below = of_numbers > 0 && self.rows.iter().any(|row| of_numbers + row.cell.least_width() > columns);
        let available = columns.saturating_sub(if are_below { CELL_INDENT } else { of_numbers });
        let own_files = self.rows.iter().filter_map(|row| match &row.cell {
            Cell::Function { at, .. } if at.origin() == CodeOrigin::Own => Some(at.file.as_str()),
            _ => None,
        });
        let directory = common_directory(own_files);
        let step = if deepest * 2 <= available / 2 { 2 } else { 1 };
        let mut text = String::new();
        for TextRow { numbers, cell } in &self.rows {
            text += numbers;
            if are_below {
                text.truncate(text.trim_end_matches(' ').len());
                text += &format!("\n{:CELL_INDENT$}", "");
            }
            match cell {
                Cell::Heading(name) => {
                    let is_of_functions = !directory.is_empty() && available >= name.width() + MIN_CELL;
                    let below = if is_of_functions { format!("  (paths in {directory})") } else { String::new() };
                    text += &cut_middle(&format!("{name}{below}"), available.max(name.width()));
                }
                Cell::Function { depth, at, suffix } => {
                    let indent = indentation(*depth, step, available);
                    let available = available.saturating_sub(indent.width() + suffix.width());
                    text += &format!("{indent}{}{suffix}", self.fitting_function(at, &directory, available));
                }
                Cell::Text { whole, cut } => {
                    text += whole;
                    text += &cut_middle(cut, available.saturating_sub(whole.width()).max(MIN_CELL));
                }
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }

    fn plain(&self) -> String {
        let mut text = String::new();
        for TextRow { numbers, cell } in &self.rows {
            text += numbers;
            match cell {
                Cell::Heading(name) => text += name,
                Cell::Function { depth, at, suffix } => {
                    let style = style_of(at);
                    text += &"  ".repeat(*depth);
                    text += &self.layout.styled(style, &function_text(at));
                    text += suffix;
                }
                Cell::Text { whole, cut } => text.extend([whole.as_str(), cut.as_str()]),
            }
            text.push('\n');
        }
        text
    }

    /// Removes each column of the numbers that is blank in all rows, beside another such column.
    fn remove_common_blanks(&mut self) {
        let numbers: Vec<Vec<char>> = self.rows.iter().map(|row| row.numbers.chars().collect()).collect();
        let width = numbers.iter().map(Vec::len).max().unwrap_or(0);
        let is_blank = |at: usize| numbers.iter().all(|row| row.get(at).is_none_or(|letter| *letter == ' '));
        // The column to the left of the first one counts as blank.
        let is_kept: Vec<bool> =
            (0..width).map(|at| !is_blank(at) || at + 1 == width || at > 0 && !is_blank(at - 1)).collect();
        for (row, letters) in self.rows.iter_mut().zip(&numbers) {
            row.numbers = letters.iter().zip(&is_kept).filter(|(_, kept)| **kept).map(|(letter, _)| letter).collect();
        }
    }

    /// Name and file in `available` columns.
    fn fitting_function(&self, at: &FunctionLine, directory: &str, available: usize) -> String {
        let name = printable(&at.function);
        let mut place = printable(shortened(&at.file, directory));
        if at.line > 0 {
            place += &format!(":{}", at.line);
        }
        let for_place = available.saturating_sub(name.width() + 2).max(available / 2);
        let mut place = last_components(&place, for_place);
        if place.width() + 2 + MIN_CELL.min(name.width()) > available {
            place.clear();
        }
        let of_place = if place.is_empty() { 0 } else { place.width() + 2 };
        let name = cut_middle(&name, available.saturating_sub(of_place).max(1));
        let name = self.layout.styled(style_of(at), &name);
        if place.is_empty() {
            name
        } else {
            format!("{name}  {}", self.layout.styled(LIBRARY, &place))
        }
    }
}

impl Cell {
    fn depth(&self) -> usize {
        if let Cell::Function { depth, .. } = self {
            *depth
        } else {
            0
        }
    }

    /// Width that is needed beside the numbers.
    fn least_width(&self) -> usize {
        match self {
            Cell::Heading(_) => 0,
            Cell::Function { at, .. } => function_text(at).width().min(MIN_CELL),
            Cell::Text { whole, cut } => whole.width() + cut.width().min(MIN_CELL),
        }
    }
}

/// Own code is bold, libraries and the runtime are dim; names of unknown origin are plain.
fn style_of(at: &FunctionLine) -> Style {
    match at.origin() {
        CodeOrigin::Own => OWN,
        CodeOrigin::Unknown => Style::new(),
        _ => LIBRARY,
    }
}

/// The indentation of a call. Beyond half of the width the depth is a number.
fn indentation(depth: usize, step: usize, available: usize) -> String {
    match depth * step <= available / 2 {
        true => " ".repeat(depth * step),
        false => {
            let number = format!("{depth}› ");
            format!("{}{number}", " ".repeat((available / 2).saturating_sub(number.width())))
        }
    }
}

/// The text in at most `columns`: its beginning and, twice as long, its end.
pub fn cut_middle(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let kept = columns.saturating_sub(ELLIPSIS.width());
    let prefix = fitting(text.chars(), kept / 3);
    let suffix: String = fitting(text.chars().rev(), kept - prefix.width()).chars().rev().collect();
    format!("{prefix}{ELLIPSIS}{suffix}")
}

/// The text in at most `columns`, without its end.
pub fn cut_end(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        text.to_owned()
    } else {
        fitting(text.chars(), columns.saturating_sub(ELLIPSIS.width())) + ELLIPSIS
    }
}

fn fitting(letters: impl Iterator<Item = char>, columns: usize) -> String {
    let mut used = 0;
    letters
        .take_while(|letter| {
            used += letter.width().unwrap_or(0);
            used <= columns
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::FrameType;

    const NARROW: TerminalLayout = TerminalLayout { columns: Some(80), is_colored: false };

    fn at(function: &str, file: &str) -> FunctionLine {
        FunctionLine {
            function: function.to_owned(),
            file: file.to_owned(),
            frame_type: FrameType::Cpython,
            ..FunctionLine::default()
        }
    }

    fn table(layout: TerminalLayout) -> String {
        let mut table = FittingTable::new(layout);
        let numbers = |flat: &str| format!("{flat:>10} {:>6} {:>10} {:>6}  ", "50.0%", "1.00 s", "100.0%");
        table.heading(format!("{:>10} {:>6} {:>10} {:>6}  ", "flat", "flat%", "cum", "cum%"), "function");
        table.function(numbers("1.00 s"), 0, &at("price", "/srv/shop/cart/price.py"), "");
        table.function(numbers("2.00 s"), 0, &at("Cart.sum", "/srv/shop/cart.py"), "");
        let long = format!("a_module.{}.with_a_name", "Class".repeat(20));
        table.function(numbers("3.00 s"), 0, &at(&long, "/venv/lib/python3.11/site-packages/lib/a.py"), "");
        table.text()
    }

    #[test]
    fn a_file_or_a_pipe_gets_whole_names_and_paths() {
        let text = table(TerminalLayout { columns: None, is_colored: false });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "    1.00 s  50.0%     1.00 s 100.0%  price  /srv/shop/cart/price.py");
        assert!(lines[3].ends_with("Class.with_a_name  /venv/lib/python3.11/site-packages/lib/a.py"), "{text}");
    }

    #[test]
    fn rows_fit_the_terminal_and_paths_are_relative_to_the_own_files() {
        for columns in [40, 60, 80, 160] {
            let text = table(TerminalLayout { columns: Some(columns), ..NARROW });
            assert!(text.lines().all(|line| line.width() <= columns), "{columns}:\n{text}");
        }
        let text = table(NARROW);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "  flat flat%    cum   cum%  function  (paths in /srv/shop/)");
        assert_eq!(lines[1], "1.00 s 50.0% 1.00 s 100.0%  price  cart/price.py");
        assert!(lines[3].contains("a_module.") && lines[3].contains('…'), "{text}");
        assert!(lines[3].ends_with("with_a_name  lib/a.py"), "{text}");
    }

    #[test]
    fn own_functions_are_bold_and_libraries_dim() {
        let text = table(TerminalLayout { is_colored: true, ..NARROW });
        assert!(text.contains("\x1b[1mprice\x1b[0m  \x1b[2mcart/price.py\x1b[0m\n"), "{text:?}");
        assert!(text.contains("with_a_name\x1b[0m  \x1b[2mlib/a.py"), "{text:?}");
        let piped = table(TerminalLayout { columns: None, is_colored: true });
        assert!(piped.contains("\x1b[1mprice  /srv/shop/cart/price.py\x1b[0m\n"), "{piped:?}");
    }

    #[test]
    fn deep_calls_keep_room_for_their_names() {
        let mut table = FittingTable::new(NARROW);
        for depth in 0..200 {
            table.function("    1.00 s  ", depth, &at(&format!("function_{depth}"), "/srv/a.py"), "");
        }
        let text = table.text();
        assert!(text.lines().all(|line| line.width() <= 80), "{text}");
        assert!(text.lines().last().unwrap().contains("199› function_199"), "{text}");
    }

    #[test]
    fn a_part_that_is_never_cut_moves_to_the_next_line() {
        let mut table = FittingTable::new(NARROW);
        let (ids, endpoint) = ("a".repeat(32) + "  ", "/cart/".repeat(20));
        let numbers = "0.001 s ".repeat(8);
        table.row(numbers.as_str(), ids.as_str(), endpoint);
        let text = table.text();
        let [first, second] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert_eq!(first, numbers.trim_end());
        assert!(second.contains(&ids) && second.width() == 80, "{text}");
    }

    #[test]
    fn wide_letters_count_as_two_columns() {
        assert_eq!(cut_middle("価格計算関数", 12), "価格計算関数");
        assert_eq!(cut_middle("価格計算関数", 9), "価…算関数");
        assert_eq!(cut_end("価格計算", 6), "価格…");
    }
}
