//! `spanprof merge`: several profiles as one file.

use spanprof_answers::failure::Failure;
use spanprof_answers::selection::EndArguments;

use super::convert::{detail_of, format_of_name, write};
use super::{selected, OutputArguments, ReadArguments, SOURCE_ABOUT};

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof merge FILE|DIR|URL… -o FILE [FLAGS]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof merge worker-1.pb.gz worker-2.pb.gz -o workers.pb.gz
  spanprof merge ./profiles --service checkout --from -1h -o hour.otlp.pb.gz"
)]
pub(crate) struct MergeArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

pub(crate) fn run(arguments: &MergeArguments) -> Result<i32, Failure> {
    let format = format_of_name(&arguments.output.output).ok_or_else(|| {
        Failure::usage("the output's format is unknown").hint(
            "name a file with -o, such as all.pb.gz (pprof) or all.otlp.pb.gz; `spanprof convert --to` names a format",
        )
    })?;
    let (data, filter) = selected(&arguments.read, arguments.end.to.as_deref(), detail_of(format))?;
    write(&data, &filter, format, &arguments.output)
}
