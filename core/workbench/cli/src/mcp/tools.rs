//! The tools: verbs of the command line with `--json` on the sources of the server. Descriptions and schemas of their arguments
//! come from the definition of the command line.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command};
use serde_json::{json, Map, Value};

use super::page::page;
use spanprof_answers::failure::Failure;

/// Size of a result when the call does not name one.
const DEFAULT_BYTES: usize = 4096;
const MAX_BYTES: usize = 64 << 10;
/// Flags that are not arguments of a tool: its result is JSON, has pages, and reads the server's sources.
const OTHER_FLAGS: [&str; 9] =
    ["json", "limit", "help", "markdown", "output", "fail-over", "source-path", "trim-path", "only-source-path"];

/// Verbs that are tools.
const TOOLS: [&str; 9] = ["services", "labels", "top", "tree", "peek", "list", "spans", "diff", "explain"];

/// Runs a verb: its command line to its result.
pub(crate) type RunVerb = fn(&[String]) -> Result<Value, Failure>;

/// The tools of the MCP server, and the sources that they read.
pub(crate) struct Toolbox {
    verbs: Vec<Command>,
    run: RunVerb,
    sources: Vec<String>,
    source_path: Vec<PathBuf>,
}

impl Toolbox {
    /// The tools for the reading verbs of `command`. `source_path` are the directories of `list`, which reads no other files.
    pub(crate) fn new(command: &Command, run: RunVerb, sources: Vec<String>, source_path: Vec<PathBuf>) -> Self {
        let has_json = |verb: &&Command| verb.get_arguments().any(|flag| flag.get_id() == "json");
        let is_tool = |verb: &&Command| TOOLS.contains(&verb.get_name()) && has_json(verb);
        Self { verbs: command.get_subcommands().filter(is_tool).cloned().collect(), run, sources, source_path }
    }

    /// The result of `tools/list`.
    pub(super) fn list(&self) -> Value {
        let tool = |verb: &Command| {
            let schemas = arguments_of(verb).map(|argument| (name_of(argument), schema_of(argument)));
            let mut properties: Map<String, Value> = schemas.collect();
            let paging = [
                ("cursor", json!({"type": "string", "description": "next_cursor of the previous result"})),
                (
                    "max_bytes",
                    json!({
                        "type": "integer", "minimum": 512, "maximum": MAX_BYTES, "default": DEFAULT_BYTES,
                        "description": "size of the result"
                    }),
                ),
            ];
            properties.extend(paging.map(|(name, schema)| (name.to_owned(), schema)));
            let required: Vec<String> =
                arguments_of(verb).filter(|argument| argument.is_required_set()).map(name_of).collect();
            json!({
                "name": verb.get_name(),
                "description": verb.get_about().map(ToString::to_string).unwrap_or_default(),
                "inputSchema": {
                    "type": "object", "properties": properties, "required": required, "additionalProperties": false
                },
                "annotations": {"readOnlyHint": true, "openWorldHint": false},
            })
        };
        self.verbs.iter().map(tool).collect()
    }

    /// The result of `tools/call`. A failure of the tool is a result, which the model reads; an unknown tool is an error of the
    /// protocol.
    pub(super) fn call(&self, parameters: &Value) -> Result<Value, String> {
        let name = parameters["name"].as_str().unwrap_or_default();
        let Some(verb) = self.verbs.iter().find(|verb| verb.get_name() == name) else {
            let names: Vec<_> = self.verbs.iter().map(Command::get_name).collect();
            return Err(format!("unknown tool `{name}`: expected one of {}", names.join(", ")));
        };
        let empty = Map::new();
        let (text, is_error) = match self.result(verb, parameters["arguments"].as_object().unwrap_or(&empty)) {
            Ok(result) => (result.to_string(), false),
            Err(message) => (message, true),
        };
        Ok(json!({"content": [{"type": "text", "text": text}], "isError": is_error}))
    }

    fn result(&self, verb: &Command, arguments: &Map<String, Value>) -> Result<Value, String> {
        let mut arguments = arguments.clone();
        let cursor = match arguments.remove("cursor") {
            None | Some(Value::Null) => 0,
            Some(cursor) => cursor
                .as_str()
                .and_then(|cursor| cursor.parse().ok())
                .ok_or_else(|| format!("`cursor`: expected the next_cursor of a result, got {cursor}"))?,
        };
        let max_bytes = match arguments.remove("max_bytes") {
            None | Some(Value::Null) => DEFAULT_BYTES,
            Some(bytes) => bytes
                .as_u64()
                .and_then(|bytes| usize::try_from(bytes).ok())
                .filter(|bytes| (512..=MAX_BYTES).contains(bytes))
                .ok_or_else(|| format!("`max_bytes`: expected a number from 512 to {MAX_BYTES}, got {bytes}"))?,
        };
        let command_line = self.command_line(verb, &arguments)?;
        match (self.run)(&command_line).map_err(|failure| failure.to_string())? {
            Value::Object(members) => Ok(page(members, cursor, max_bytes)),
            other => Ok(other),
        }
    }

    /// The command line of a call. Every value is in the same word as its flag or behind `--`, so that none is read as a flag.
    fn command_line(&self, verb: &Command, arguments: &Map<String, Value>) -> Result<Vec<String>, String> {
        let mut command_line = vec![verb.get_name().to_owned(), "--json".to_owned()];
        let has = |flag: &str| verb.get_arguments().any(|argument| argument.get_long() == Some(flag));
        if has("limit") {
            command_line.push("--limit=0".to_owned());
        }
        if has("only-source-path") {
            command_line.push("--only-source-path".to_owned());
            command_line.extend(self.source_path.iter().map(|path| format!("--source-path={}", path.display())));
        }
        let is_missing = |argument: &&Arg| argument.is_required_set() && !arguments.contains_key(&name_of(argument));
        if let Some(missing) = arguments_of(verb).find(is_missing) {
            return Err(format!("the argument `{}` is missing", name_of(missing)));
        }
        let mut positional = Vec::new();
        for (name, value) in arguments.iter().filter(|(_, value)| !value.is_null()) {
            let argument = arguments_of(verb).find(|argument| name_of(argument) == *name).ok_or_else(|| {
                let known: Vec<_> =
                    arguments_of(verb).map(name_of).chain(["cursor".into(), "max_bytes".into()]).collect();
                format!("unknown argument `{name}`: expected one of {}", known.join(", "))
            })?;
            let values = match value {
                Value::Array(values) => values.clone(),
                one => vec![one.clone()],
            };
            for value in values {
                let text = match value {
                    Value::String(text) => text,
                    Value::Number(number) => number.to_string(),
                    Value::Bool(flag) => flag.to_string(),
                    other => return Err(format!("`{name}`: expected a text, got {other}")),
                };
                match (argument.get_long(), argument.get_action()) {
                    (None, _) => positional.push(text),
                    (Some(flag), ArgAction::SetTrue) if text == "true" => command_line.push(format!("--{flag}")),
                    (Some(_), ArgAction::SetTrue) => (),
                    (Some(flag), _) => command_line.push(format!("--{flag}={text}")),
                }
            }
        }
        command_line.push("--".to_owned());
        command_line.extend(positional);
        command_line.extend(self.sources.iter().cloned());
        Ok(command_line)
    }
}

/// The flags of a verb that are arguments of its tool, and its positional pattern.
fn arguments_of(verb: &Command) -> impl Iterator<Item = &Arg> {
    verb.get_arguments().filter(|argument| {
        let is_source = argument.get_id() == "sources";
        let is_other = argument.get_long().is_some_and(|flag| OTHER_FLAGS.contains(&flag));
        !is_source && !is_other
    })
}

/// `trace_id` for `--trace-id`.
fn name_of(argument: &Arg) -> String {
    argument.get_long().map_or_else(|| argument.get_id().to_string(), |flag| flag.replace('-', "_"))
}

fn schema_of(argument: &Arg) -> Value {
    let mut schema = match argument.get_action() {
        ArgAction::SetTrue => json!({"type": "boolean"}),
        ArgAction::Append => json!({"type": "array", "items": {"type": "string"}}),
        _ => json!({"type": "string"}),
    };
    let form = argument.get_value_names().unwrap_or_default().first().map(|name| name.to_lowercase());
    let help = argument.get_help().map(ToString::to_string);
    let description = match (help, form) {
        (Some(help), Some(form)) if argument.get_action().takes_values() => format!("{help} ({form})"),
        (Some(help), _) => help,
        (None, form) => form.unwrap_or_default(),
    };
    schema["description"] = description.into();
    let values: Vec<String> = argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !values.is_empty() && argument.get_action().takes_values() {
        schema["enum"] = values.into();
    }
    if let Some(default) = argument.get_default_values().first().filter(|_| argument.get_action().takes_values()) {
        schema["default"] = default.to_string_lossy().into();
    }
    schema
}
