//! Tables of functions or lines: the flags that `top` and `diff` share.

use spanprof_profile::ProfilesData;
use spanprof_read::query::{self, Compared, Granularity};

/// Flags of a table.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TableArguments {
    /// rows to print, 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value = "30", value_parser = row_limit)]
    pub limit: usize,
    /// rows: functions, their lines, or types of objects (of inuse_space without --type)
    #[arg(long, value_name = "ROWS", value_enum, default_value_t = Rows::Function)]
    pub by: Rows,
    /// as JSON
    #[arg(long)]
    pub json: bool,
}

/// Parses a number of rows, 0 for all of them.
pub(super) fn row_limit(text: &str) -> Result<usize, std::num::ParseIntError> {
    text.parse().map(|limit| if limit == 0 { usize::MAX } else { limit })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SortColumn {
    Flat,
    Cum,
}

impl From<SortColumn> for Compared {
    fn from(column: SortColumn) -> Self {
        match column {
            SortColumn::Flat => Compared::Flat,
            SortColumn::Cum => Compared::Cum,
        }
    }
}

/// The flag `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Rows {
    Function,
    Line,
    Type,
}

impl Rows {
    /// The profile type without `--type`; `None` for that of the sources.
    pub(super) fn default_type(self) -> Option<String> {
        (self == Rows::Type).then(|| "inuse_space".to_owned())
    }

    /// Reduces the stacks to the rows, unless the query does.
    pub(super) fn reduce(self, data: &mut ProfilesData) {
        if self == Rows::Type {
            query::reduce_to_types(data);
        }
    }
}

impl From<Rows> for Granularity {
    fn from(rows: Rows) -> Self {
        match rows {
            Rows::Function | Rows::Type => Granularity::Function,
            Rows::Line => Granularity::Line,
        }
    }
}
