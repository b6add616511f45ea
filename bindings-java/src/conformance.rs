//! Native methods of the Java conformance runner. Configuration and scopes go through the package's API, the rest of a case
//! through the core. Compiled only with the feature `testing`; called by the test program `Cases`.

use jni::objects::{JByteArray, JLongArray, JObject};
use jni::{jni_sig, jni_str, Env};
use spanprof_aggregate::context::open_context;
use spanprof_config::{from_json, ConfigValue};
use spanprof_profiler::conformance::{run_in, Case, EndRequest, Language, SampleStep, ScopeLabels};

use crate::context::ContextWords;
use crate::convert::{native_methods, pack, packed_array, read_words, text_of, LocalRef};

struct JavaLanguage<'a, 'e, 'r> {
    env: &'a mut Env<'e>,
    config: Vec<(String, ConfigValue)>,
    runner: &'a JObject<'r>,
}

impl JavaLanguage<'_, '_, '_> {
    /// The context of a sample; scopes are packed as the number of labels of each, then its keys and values.
    fn words(&mut self, sample: &SampleStep) -> jni::errors::Result<ContextWords> {
        let scopes = self.env.byte_array_from_slice(&packed(&sample.scopes))?;
        let ended = self.env.byte_array_from_slice(&pack(sample.ended.iter().map(usize::to_string)))?;
        let bound_in = match &sample.bound_in {
            None => JByteArray::null(),
            Some(scopes) => self.env.byte_array_from_slice(&packed(scopes))?,
        };
        let request = self.env.byte_array_from_slice(&pack(sample.request.clone()))?;
        let flags = [sample.prepared.into(), sample.returned.into()];
        let arguments = [(&scopes).into(), (&ended).into(), flags[0], (&bound_in).into(), flags[1], (&request).into()];
        let words = self.env.call_method(self.runner, jni_str!("contextOf"), jni_sig!("([B[BZ[BZ[B)[J"), &arguments)?;
        let words: JLongArray<'_> = self.env.cast_local::<JLongArray>(words.l()?)?;
        read_words(self.env, &words)
    }

    fn report(&mut self, end: &EndRequest) -> jni::errors::Result<()> {
        let names = self.env.byte_array_from_slice(&pack([end.request.clone(), end.endpoint.clone()]))?;
        let arguments = [(&names).into(), i64::from(end.duration_ms).into(), end.is_error.into()];
        self.env.call_method(self.runner, jni_str!("endRequest"), jni_sig!("([BJZ)V"), &arguments)?;
        Ok(())
    }
}

fn packed(scopes: &[ScopeLabels]) -> Vec<u8> {
    pack(scopes.iter().flat_map(|scope| {
        let labels = scope.iter().flat_map(|(key, value)| [key.clone(), value.clone()]);
        std::iter::once(scope.len().to_string()).chain(labels)
    }))
}

impl Language for JavaLanguage<'_, '_, '_> {
    fn code(&mut self, _case: &Case) -> Vec<(String, ConfigValue)> {
        std::mem::take(&mut self.config)
    }

    fn context(&mut self, sample: &SampleStep) -> u64 {
        // No case uses this id, so a failed call fails the case.
        self.words(sample).map_or(u64::MAX, |words| open_context(words.row()))
    }

    fn end_request(&mut self, end: &EndRequest) {
        // An end that was not reported fails the case.
        let _ = self.report(end);
    }
}

native_methods! {
    /// Runs one case: its text, its `config` as the package passes it, and a runner whose `contextOf`
    /// returns the context of a sample. Returns the case's name, or an empty string and the failure.
    fn Java_io_spanprof_Cases_runCase(
        env, _class, text: JByteArray<'_>, config: JByteArray<'_>, runner: JObject<'_>
    ) -> LocalRef {
        let (text, config) = (text_of(env, &text)?, text_of(env, &config)?);
        let outcome = from_json(&config)
            .map_err(|error| error.to_string())
            .and_then(|config| run_in(&text, &mut JavaLanguage { env: &mut *env, config, runner: &runner }));
        match outcome {
            Ok(name) => packed_array(env, [name]),
            Err(problem) => packed_array(env, [String::new(), problem]),
        }
    }
}
