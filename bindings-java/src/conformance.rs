//! The Java runner's door to the conformance suite: configuration and scopes go through the package's own API, the rest of
//! a case through the core. Compiled with the feature `testing` only; called by the program `Cases` of the tests.

use std::collections::BTreeMap;

use jni::objects::{JByteArray, JClass, JLongArray, JObject};
use jni::{jni_sig, jni_str, Env, EnvUnowned};
use spanprof::config::from_json;
use spanprof::conformance::{run_in, Case, Language};
use spanprof::context::open_context;
use spanprof::ConfigValue;

use crate::context_calls::{row_of, Words};
use crate::door::{given, text_of, through, words_in, Given};
use crate::packed::pack;

struct Java<'a, 'e, 'r> {
    env: &'a mut Env<'e>,
    config: Vec<(String, ConfigValue)>,
    runner: &'a JObject<'r>,
}

impl Java<'_, '_, '_> {
    /// What the scopes say: each scope is handed over as its number of labels, then keys and values.
    fn words(&mut self, scopes: &[BTreeMap<String, String>]) -> jni::errors::Result<Words> {
        let texts = scopes.iter().flat_map(|scope| {
            let labels = scope.iter().flat_map(|(key, value)| [key.clone(), value.clone()]);
            std::iter::once(scope.len().to_string()).chain(labels)
        });
        let packed = self.env.byte_array_from_slice(&pack(texts))?;
        let answer = self.env.call_method(self.runner, jni_str!("inside"), jni_sig!("([B)[J"), &[(&packed).into()])?;
        let words: JLongArray<'_> = self.env.cast_local::<JLongArray>(answer.l()?)?;
        words_in(self.env, &words)
    }
}

impl Language for Java<'_, '_, '_> {
    fn code(&mut self, _case: &Case) -> Vec<(String, ConfigValue)> {
        std::mem::take(&mut self.config)
    }

    fn context(&mut self, scopes: &[BTreeMap<String, String>]) -> u64 {
        // No case gives this id, so a failing call fails the case.
        self.words(scopes).map_or(u64::MAX, |words| open_context(row_of(&words)))
    }
}

/// Runs one case: its text, its `config` as the package hands it over, and a runner whose `inside` opens scopes and tells
/// what the thread says in them. Gives the case's name, or nothing and what did not hold.
#[no_mangle]
pub extern "system" fn Java_io_spanprof_Cases_runCase<'l>(
    env: EnvUnowned<'l>,
    _class: JClass<'l>,
    text: JByteArray<'l>,
    config: JByteArray<'l>,
    runner: JObject<'l>,
) -> Given {
    through(env, |env| {
        let (text, config) = (text_of(env, &text)?, text_of(env, &config)?);
        let outcome = from_json(&config)
            .map_err(|error| error.to_string())
            .and_then(|config| run_in(&text, &mut Java { env: &mut *env, config, runner: &runner }));
        match outcome {
            Ok(name) => given(env, [name]),
            Err(problem) => given(env, [String::new(), problem]),
        }
    })
}
