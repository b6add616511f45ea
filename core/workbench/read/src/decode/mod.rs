//! Decoders for OTLP, pprof, folded stacks and speedscope, with limits on bytes, counts and indices. Input is untrusted: every function here returns within one second and 256 MB for any input with the default limits.

mod decompress;
pub mod folded;
mod json_bound;
pub mod otlp;
pub mod pprof;
mod speedscope;
mod unknown;

pub use crate::error::DecodeError;
pub use crate::limits::DecodeLimits;

use crate::wire::scan;
use spanprof_profile::ProfilesData;

/// A profile format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OTLP profiles: protobuf, or the Collector's file exporter (JSON lines, length-prefixed protobuf); plain or gzip.
    Otlp,
    /// pprof: plain or gzip.
    Pprof,
    /// Lines of `root;…;leaf weight`: plain or gzip.
    Folded,
    /// Sampled and evented profiles of speedscope: plain or gzip.
    Speedscope,
}

/// Detects the format by content: pprof has fields that OTLP's outermost message lacks, such as the string table.
pub fn detect(bytes: &[u8], limits: &DecodeLimits) -> Result<Format, DecodeError> {
    let body = decompress::decompress("profile", bytes, limits)?;
    Ok(format_of(&body))
}

/// Returns the error of [`any`] for a profile beyond the limits, without decoding it.
pub fn check_size(bytes: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
    let body = decompress::decompress("profile", bytes, limits)?;
    match format_of(&body) {
        Format::Otlp => otlp::check_size(&body, limits),
        Format::Pprof => pprof::check_size(&body, limits),
        Format::Folded => Ok(()),
        Format::Speedscope => speedscope::check_size(&body, limits),
    }
}

/// Decodes any of the formats; the error names the format of an unsupported file if it is recognized.
pub fn any(bytes: &[u8], limits: &DecodeLimits) -> Result<(Format, ProfilesData), DecodeError> {
    let body = decompress::decompress("profile", bytes, limits)?;
    let format = format_of(&body);
    let unknown = unknown::unsupported_format(&body);
    let data = match format {
        Format::Otlp => otlp::decode_decompressed(body, limits),
        Format::Pprof => pprof::decode_decompressed(body, limits),
        Format::Folded => folded::decode_decompressed(body, limits),
        Format::Speedscope => speedscope::decode_decompressed(&body, limits),
    };
    match (data, unknown) {
        // JSON of another format has none of the fields and decodes to nothing.
        (Ok(data), Some(unknown)) if data.resources.is_empty() => Err(unknown),
        (Ok(data), _) => Ok((format, data)),
        (Err(error), unknown) => Err(unknown.unwrap_or(error)),
    }
}

fn format_of(body: &[u8]) -> Format {
    if unknown::text_of(body).is_some_and(folded::is_folded) {
        return Format::Folded;
    }
    if speedscope::is_speedscope(body) {
        return Format::Speedscope;
    }
    match scan::outer_fields(body) {
        Some(fields) if fields.iter().any(|field| (3..=15).contains(field)) => Format::Pprof,
        _ => Format::Otlp,
    }
}
