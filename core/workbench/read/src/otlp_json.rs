//! Writes profiles as OTLP/JSON: the protobuf JSON mapping with OpenTelemetry's exceptions (ids in hex, enums as numbers),
//! which the Collector receives and its file exporter writes. Called by `convert --to json`.

use prost::Message;
use spanprof_profile::encode::otlp;
use spanprof_profile::ProfilesData;

use crate::wire::otlp as wire;

/// One line of JSON: the messages of the protobuf request.
///
/// # Errors
/// None is known; the text is that of the protobuf or the JSON library.
pub fn encode(data: &ProfilesData) -> Result<String, String> {
    let request = otlp::encode(data, otlp::Revision::One);
    let request = wire::ProfilesData::decode(&request[..]).map_err(|error| error.to_string())?;
    let json = serde_json::to_string(&request).map_err(|error| error.to_string())?;
    Ok(json + "\n")
}
