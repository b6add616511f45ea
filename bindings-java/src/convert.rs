//! The options of an agent into the core's keys and values, and the settings of this binding alone. No policy: what a
//! value means is the core's. Called by the doors.

use spanprof::config::{in_camel_case, snake_case, BindingOption, OptionValues, KEYS};
use spanprof::{Config, ConfigValue};

use crate::runtime::StackWalk;

/// Under this key the package hands over the options of its agent as one text.
const AGENT_OPTIONS: &str = "agent_options";

/// What an agent was given behind its path.
#[derive(Debug, Default, PartialEq)]
pub struct AgentOptions {
    pub settings: Vec<(String, ConfigValue)>,
    /// Parts that are no settings.
    pub warnings: Vec<String>,
}

/// An agent's options: `key=value` pairs with commas between them. A key that takes a map takes the pairs behind it as well,
/// up to the next key: `tags=region=eu,zone=b,sampleRate=99`.
pub fn options(text: &str) -> AgentOptions {
    let mut read = AgentOptions::default();
    // The text of the map that further pairs belong to.
    let mut map: Option<String> = None;
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let pair = part.split_once('=').map(|(key, value)| (snake_case(key.trim()), value.trim()));
        let is_key = pair.as_ref().is_some_and(|(key, _)| is_key(key));
        let last = read.settings.last_mut().map(|(_, value)| value);
        match (pair, &mut map, last) {
            (Some(_), Some(pairs), Some(last)) if !is_key => {
                *pairs += ",";
                *pairs += part;
                *last = ConfigValue::Text(pairs.clone());
            }
            (Some((key, value)), _, _) => {
                map = takes_map(&key).then(|| value.to_owned());
                read.settings.push((key, ConfigValue::Text(value.to_owned())));
            }
            (None, _, _) => read.warnings.push(format!(
                "option `{part}` of the agent is ignored: expected key=value, such as serviceName=checkout,sampleRate=99"
            )),
        }
    }
    read
}

fn is_key(name: &str) -> bool {
    KEYS.iter().any(|key| key.name == name) || OPTIONS.iter().any(|option| option.name == name)
}

fn takes_map(name: &str) -> bool {
    KEYS.iter().any(|key| key.name == name && key.type_name == "map of text")
}

/// The options of the VM's own agent as settings given in code.
pub fn agent_options(text: String) -> Vec<(String, ConfigValue)> {
    vec![(AGENT_OPTIONS.to_owned(), ConfigValue::Text(text))]
}

/// Takes the options of an agent out of the settings given in code, and puts in what they say.
pub fn take_agent_options(code: &mut Vec<(String, ConfigValue)>) -> Vec<String> {
    let Some(at) = code.iter().position(|(key, _)| key == AGENT_OPTIONS) else { return Vec::new() };
    let ConfigValue::Text(text) = code.remove(at).1 else { return Vec::new() };
    let read = options(&text);
    code.extend(read.settings);
    read.warnings
}

/// A message with keys as a user of this package writes them.
pub fn message(text: &str) -> String {
    in_camel_case(text, &OPTIONS)
}

/// What this binding can be told beyond the keys of the core.
pub static OPTIONS: [BindingOption; 2] = [
    BindingOption {
        name: "stack_walk",
        values: OptionValues::Choice(&["auto", "own", "vm"]),
        default: "auto",
        doc: "who walks the stacks; leave it out for the best that works here",
    },
    // Read in Java, before this library is loaded.
    BindingOption {
        name: "library_directory",
        values: OptionValues::Text,
        default: "",
        doc: "directory in which the native library is unpacked",
    },
];

/// Who walks the stacks under this configuration.
pub fn stack_walk(config: &Config) -> StackWalk {
    match config.option("stack_walk") {
        "vm" => StackWalk::ByVm,
        _ => StackWalk::Auto,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_an_agent_are_keys_and_values() {
        let given = options("serviceName=checkout, sampleRate=99,,endpoint=http://a/?b=c");
        let text = |key: &str, value: &str| (key.to_owned(), ConfigValue::Text(value.to_owned()));
        let wanted = [text("service_name", "checkout"), text("sample_rate", "99"), text("endpoint", "http://a/?b=c")];
        assert_eq!(given.settings, wanted);
        assert_eq!((given.warnings, options("")), (Vec::new(), AgentOptions::default()));
    }

    #[test]
    fn a_key_that_takes_a_map_takes_the_pairs_up_to_the_next_key() {
        let given = options("tags=region=eu, zone=b,sampleRate=99,resourceAttributes=a=1,b=2");
        let text = |key: &str, value: &str| (key.to_owned(), ConfigValue::Text(value.to_owned()));
        let wanted =
            [text("tags", "region=eu,zone=b"), text("sample_rate", "99"), text("resource_attributes", "a=1,b=2")];
        assert_eq!(given.settings, wanted);
        let config = Config::load_with_options(&given.settings, &Default::default(), &OPTIONS).unwrap();
        assert_eq!(
            config.tags.into_iter().collect::<Vec<_>>(),
            [("region", "eu"), ("zone", "b")].map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn a_part_that_is_no_setting_is_a_warning_and_an_unknown_key_is_for_the_core() {
        let given = options("foo,sampelRate=99");
        assert_eq!(given.settings, [("sampel_rate".to_owned(), ConfigValue::Text("99".to_owned()))]);
        assert!(given.warnings.len() == 1 && given.warnings[0].contains("option `foo`"), "{:?}", given.warnings);
        let mut code = vec![("agent_options".to_owned(), ConfigValue::Text("foo,clock=auto".to_owned()))];
        assert_eq!(take_agent_options(&mut code).len(), 1);
        assert_eq!(code, [("clock".to_owned(), ConfigValue::Text("auto".to_owned()))]);
    }

    #[test]
    fn how_stacks_are_walked_is_an_option_of_this_binding_in_every_layer() {
        let load = |code: &str, variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Config::load_with_options(&options(code).settings, &variables, &OPTIONS)
        };
        assert_eq!(stack_walk(&load("stackWalk=vm,sampleRate=99", &[]).unwrap()), StackWalk::ByVm);
        assert_eq!(stack_walk(&load("", &[("SPANPROF_STACK_WALK", "vm")]).unwrap()), StackWalk::ByVm);
        assert_eq!(stack_walk(&load("", &[("SPANPROF_STACK_WALK", "fast")]).unwrap()), StackWalk::Auto);
        assert!(load("stackWalk=fast", &[]).unwrap_err().message.contains("auto or own or vm"));
        assert_eq!(load("", &[("SPANPROF_LIBRARY_DIRECTORY", "/opt")]).unwrap().warnings, [""; 0]);
    }
}
