//! The description of this binding, and the conversion of values: agent options into configuration keys and values, Java arrays
//! into strings and context words. No policy: the core interprets the values.
//!
//! Java and the native methods pass lists of strings packed into one byte array, since one array needs one JNI call: each
//! string's length in four bytes of native byte order, then UTF-8.

use jni::objects::{JByteArray, JLongArray};
use jni::sys::{jlong, jobject};
use jni::{Env, EnvUnowned};
use spanprof_config::{snake_case, BindingOption, Config, ConfigValue, Error, OptionValues, Shape, KEYS};
use spanprof_profiler::binding::{count_failed_call, Binding, KeyCase};

use crate::context::ContextWords;
use crate::runtime::StackWalk;

/// The key under which the package passes its agent's options as one string.
const AGENT_OPTIONS: &str = "agent_options";

#[derive(Debug, Default, PartialEq)]
pub struct AgentOptions {
    pub settings: Vec<(String, ConfigValue)>,
    /// Messages about parts that are not settings.
    pub warnings: Vec<String>,
}

/// Parses agent options: comma-separated `key=value` pairs. A key with a map value also takes the following pairs up to the
/// next key: `tags=region=eu,zone=b,sampleRate=99`.
pub fn parse_agent_options(text: &str) -> AgentOptions {
    let mut parsed = AgentOptions::default();
    // The value of the map key that further pairs extend.
    let mut map: Option<String> = None;
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let pair = part.split_once('=').map(|(key, value)| (snake_case(key.trim()), value.trim()));
        let is_key = pair.as_ref().is_some_and(|(key, _)| is_key(key));
        let last = parsed.settings.last_mut().map(|(_, value)| value);
        match (pair, &mut map, last) {
            (Some(_), Some(pairs), Some(last)) if !is_key => {
                *pairs += ",";
                *pairs += part;
                *last = ConfigValue::Text(pairs.clone());
            }
            (Some((key, value)), _, _) => {
                map = takes_map(&key).then(|| value.to_owned());
                parsed.settings.push((key, ConfigValue::Text(value.to_owned())));
            }
            (None, _, _) => parsed.warnings.push(format!(
                "option `{part}` of the agent is ignored: expected key=value, such as serviceName=checkout,sampleRate=99"
            )),
        }
    }
    parsed
}

fn is_key(name: &str) -> bool {
    KEYS.iter().any(|key| key.name == name) || BINDING.options.iter().any(|option| option.name == name)
}

fn takes_map(name: &str) -> bool {
    KEYS.iter().any(|key| key.name == name && key.shape == Shape::TextMap)
}

/// The options of the native agent as settings in code.
pub fn agent_options(text: String) -> Vec<(String, ConfigValue)> {
    vec![(AGENT_OPTIONS.to_owned(), ConfigValue::Text(text))]
}

/// Replaces agent options in the settings by the keys they contain; returns warnings.
pub fn take_agent_options(code: &mut Vec<(String, ConfigValue)>) -> Vec<String> {
    let Some(at) = code.iter().position(|(key, _)| key == AGENT_OPTIONS) else { return Vec::new() };
    let ConfigValue::Text(text) = code.remove(at).1 else { return Vec::new() };
    let parsed = parse_agent_options(&text);
    code.extend(parsed.settings);
    parsed.warnings
}

pub static BINDING: Binding = Binding { name: "java", options: &OPTIONS, key_case: KeyCase::Camel };

static OPTIONS: [BindingOption; 2] = [
    BindingOption {
        name: "stack_walk",
        values: OptionValues::Choice(&["auto", "own", "vm"]),
        default: "auto",
        doc: "the stack walker; by default the best one that works in this VM",
    },
    // Read in Java, before this library is loaded.
    BindingOption {
        name: "library_directory",
        values: OptionValues::Text,
        default: "",
        doc: "directory in which the native library is unpacked",
    },
];

/// The stack walker that a configuration selects.
pub fn stack_walk(config: &Config) -> StackWalk {
    match config.option("stack_walk") {
        "vm" => StackWalk::ByVm,
        _ => StackWalk::Auto,
    }
}

/// Runs a native method: a panic or a JNI error is counted, and Java gets the type's default value.
pub fn ffi_guard<T: Default>(mut env: EnvUnowned<'_>, body: impl FnOnce(&mut Env<'_>) -> jni::errors::Result<T>) -> T {
    spanprof_profiler::binding::ffi_guard(T::default(), || match env.with_env_no_catch(body).into_outcome() {
        jni::Outcome::Ok(value) => value,
        _ => {
            count_failed_call();
            T::default()
        }
    })
}

/// Defines native methods. Each body runs under [`ffi_guard`] and returns a JNI result; its first two parameters are the
/// environment and the class.
macro_rules! native_methods {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($env:ident, $class:ident $(, $argument:ident: $type:ty)*) $(-> $result:ty)? $body:block
    )+) => {$(
        $(#[$attribute])*
        #[no_mangle]
        pub extern "system" fn $name(
            $env: jni::EnvUnowned<'_>,
            $class: jni::objects::JClass<'_>,
            $($argument: $type),*
        ) $(-> $result)? {
            $crate::convert::ffi_guard($env, |$env| $body)
        }
    )+};
}
pub(crate) use native_methods;

pub fn bytes_of(env: &Env<'_>, array: &JByteArray<'_>) -> jni::errors::Result<Vec<u8>> {
    if array.is_null() {
        return Ok(Vec::new());
    }
    env.convert_byte_array(array)
}

/// The strings of a packed array; none for null.
pub fn texts_of(env: &Env<'_>, array: &JByteArray<'_>) -> jni::errors::Result<Vec<String>> {
    Ok(unpack(&bytes_of(env, array)?))
}

/// The text of an array in UTF-8; empty for null.
pub fn text_of(env: &Env<'_>, array: &JByteArray<'_>) -> jni::errors::Result<String> {
    Ok(String::from_utf8_lossy(&bytes_of(env, array)?).into_owned())
}

/// Packs strings into a new Java array.
pub fn packed_array<T: AsRef<str>>(
    env: &mut Env<'_>,
    texts: impl IntoIterator<Item = T>,
) -> jni::errors::Result<LocalRef> {
    Ok(LocalRef(env.byte_array_from_slice(&pack(texts))?.into_raw()))
}

/// A local reference returned to Java, or null.
#[repr(transparent)]
pub struct LocalRef(pub jobject);

impl Default for LocalRef {
    fn default() -> Self {
        Self(std::ptr::null_mut())
    }
}

/// Reads a context from an array of Java.
pub fn read_words(env: &Env<'_>, array: &JLongArray<'_>) -> jni::errors::Result<ContextWords> {
    let mut words = [0; ContextWords::COUNT];
    array.get_region(env, 0, &mut words)?;
    Ok(ContextWords::from_array(words.map(|word: jlong| word as u64)))
}

/// Writes a context to an array of Java.
pub fn write_words(env: &Env<'_>, array: &JLongArray<'_>, words: ContextWords) -> jni::errors::Result<()> {
    array.set_region(env, 0, &words.to_array().map(|word| word as jlong))
}

/// Kind, message and hint of an error.
pub fn error_array(env: &mut Env<'_>, error: &Error) -> jni::errors::Result<LocalRef> {
    packed_array(env, BINDING.error_texts(error))
}

/// Packs a list.
pub fn pack<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in texts {
        let text = text.as_ref();
        bytes.extend_from_slice(&(text.len() as u32).to_ne_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// Unpacks a list; a truncated last string is omitted.
pub fn unpack(mut bytes: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_ne_bytes(*length) as usize;
        let Some((text, rest)) = rest.split_at_checked(length) else { break };
        texts.push(String::from_utf8_lossy(text).into_owned());
        bytes = rest;
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_options_are_parsed_into_keys_and_values() {
        let parsed = parse_agent_options("serviceName=checkout, sampleRate=99,,endpoint=http://a/?b=c");
        let text = |key: &str, value: &str| (key.to_owned(), ConfigValue::Text(value.to_owned()));
        let expected = [text("service_name", "checkout"), text("sample_rate", "99"), text("endpoint", "http://a/?b=c")];
        assert_eq!(parsed.settings, expected);
        assert_eq!((parsed.warnings, parse_agent_options("")), (Vec::new(), AgentOptions::default()));
    }

    #[test]
    fn a_key_that_takes_a_map_takes_the_pairs_up_to_the_next_key() {
        let parsed = parse_agent_options("tags=region=eu, zone=b,sampleRate=99,resourceAttributes=a=1,b=2");
        let text = |key: &str, value: &str| (key.to_owned(), ConfigValue::Text(value.to_owned()));
        let expected =
            [text("tags", "region=eu,zone=b"), text("sample_rate", "99"), text("resource_attributes", "a=1,b=2")];
        assert_eq!(parsed.settings, expected);
        let config = Config::load_with_options(&parsed.settings, &Default::default(), &OPTIONS).unwrap();
        assert_eq!(
            config.tags.into_iter().collect::<Vec<_>>(),
            [("region", "eu"), ("zone", "b")].map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn a_part_that_is_not_a_setting_is_a_warning_and_an_unknown_key_is_left_to_the_core() {
        let parsed = parse_agent_options("foo,sampelRate=99");
        assert_eq!(parsed.settings, [("sampel_rate".to_owned(), ConfigValue::Text("99".to_owned()))]);
        assert!(parsed.warnings.len() == 1 && parsed.warnings[0].contains("option `foo`"), "{:?}", parsed.warnings);
        let mut code = vec![("agent_options".to_owned(), ConfigValue::Text("foo,clock=auto".to_owned()))];
        assert_eq!(take_agent_options(&mut code).len(), 1);
        assert_eq!(code, [("clock".to_owned(), ConfigValue::Text("auto".to_owned()))]);
    }

    #[test]
    fn the_stack_walker_can_be_set_in_every_configuration_layer() {
        let load = |code: &str, variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Config::load_with_options(&parse_agent_options(code).settings, &variables, &OPTIONS)
        };
        assert_eq!(stack_walk(&load("stackWalk=vm,sampleRate=99", &[]).unwrap()), StackWalk::ByVm);
        assert_eq!(stack_walk(&load("", &[("SPANPROF_STACK_WALK", "vm")]).unwrap()), StackWalk::ByVm);
        assert_eq!(stack_walk(&load("", &[("SPANPROF_STACK_WALK", "fast")]).unwrap()), StackWalk::Auto);
        assert!(load("stackWalk=fast", &[]).unwrap_err().message.contains("auto or own or vm"));
        assert_eq!(load("", &[("SPANPROF_LIBRARY_DIRECTORY", "/opt")]).unwrap().warnings, [""; 0]);
    }

    #[test]
    fn a_packed_list_unpacks_to_the_same_list() {
        let texts = ["", "route", "/käse\0\u{1f9c0}"];
        assert_eq!(unpack(&pack(texts)), texts);
        assert_eq!(unpack(&pack(texts)[..9]), ["", "r"][..1], "truncated");
    }
}
