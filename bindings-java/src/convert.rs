//! The options of an agent into the core's keys and values, and the one key that is this binding's own. No policy: what a
//! value means is the core's. Called by the doors.

use spanprof::config::snake_case;
use spanprof::{ConfigValue, Error, ErrorKind};

use crate::runtime::StackWalk;

/// An agent's options: `key=value` pairs with commas between them.
pub fn options(text: &str) -> Vec<(String, ConfigValue)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (snake_case(key.trim()), ConfigValue::Text(value.trim().to_owned()))).collect()
}

/// Takes out the one key that is this binding's own: `stackWalk`.
pub fn take_stack_walk(code: &mut Vec<(String, ConfigValue)>) -> Result<StackWalk, Error> {
    let Some(at) = code.iter().position(|(key, _)| key == "stack_walk") else { return Ok(StackWalk::Auto) };
    match code.remove(at).1 {
        ConfigValue::Null => Ok(StackWalk::Auto),
        ConfigValue::Text(text) if text == "auto" || text == "own" => Ok(StackWalk::Auto),
        ConfigValue::Text(text) if text == "vm" => Ok(StackWalk::ByVm),
        other => {
            let message = format!("stackWalk is auto, own or vm, got {other:?}");
            Err(Error::new(ErrorKind::InvalidConfig, message, "leave it out: the best that works here is taken"))
        }
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
        assert_eq!(given, wanted);
        assert_eq!(options(""), []);
    }

    #[test]
    fn how_stacks_are_walked_is_no_key_of_the_core() {
        let mut code = options("stackWalk=vm,sampleRate=99");
        assert_eq!(take_stack_walk(&mut code).unwrap(), StackWalk::ByVm);
        assert_eq!(code, options("sampleRate=99"));
        assert_eq!(take_stack_walk(&mut code).unwrap(), StackWalk::Auto);
        assert!(take_stack_walk(&mut options("stackWalk=fast")).unwrap_err().message.contains("auto, own or vm"));
    }
}
