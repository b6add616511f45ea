//! Profiles that the program collects itself, for `spanprof/pprof`: conversion of arguments and results only. Not here: the API
//! (`lib/pprof.js`).

use std::sync::{Mutex, PoisonError};

use napi::bindgen_prelude::{AsyncTask, Buffer};
use napi::{Env, Result, Task};
use napi_derive::napi;
use spanprof_profiler::binding::{self, ffi_guard};

use crate::runtime;

/// The wall-clock samples of the thread that creates it.
#[napi(js_name = "WallCollection")]
pub struct WallCollectionObject(Mutex<Option<binding::WallCollection>>);

#[napi]
impl WallCollectionObject {
    /// Begins to collect.
    #[napi(constructor)]
    pub fn new() -> Self {
        let begin = || ffi_guard(None, || Some(binding::WallCollection::begin()));
        Self(Mutex::new(runtime::while_waiting(begin)))
    }

    /// Continues with another profiler, which has started since.
    #[napi]
    pub fn resume(&self) {
        let resume = || ffi_guard((), || self.lock().iter_mut().for_each(binding::WallCollection::resume));
        runtime::while_waiting(resume);
    }

    /// Ends it on another thread; a promise of the samples as gzip-compressed pprof.
    #[napi]
    pub fn end(&self) -> AsyncTask<WallCollectionEnd> {
        AsyncTask::new(WallCollectionEnd(self.lock().take()))
    }

    /// As `end`, on this thread, which waits for some milliseconds.
    #[napi]
    pub fn end_sync(&self) -> Buffer {
        let open = self.lock().take();
        runtime::while_waiting(|| ended(open)).into()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<binding::WallCollection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for WallCollectionObject {
    fn default() -> Self {
        Self::new()
    }
}

fn ended(open: Option<binding::WallCollection>) -> Vec<u8> {
    ffi_guard(Vec::new(), || open.map(|open| open.end().pprof()).unwrap_or_default())
}

/// See [`WallCollectionObject::end`].
pub struct WallCollectionEnd(Option<binding::WallCollection>);

impl Task for WallCollectionEnd {
    type Output = Vec<u8>;
    type JsValue = Buffer;

    fn compute(&mut self) -> Result<Self::Output> {
        Ok(ended(self.0.take()))
    }

    fn resolve(&mut self, _env: Env, pprof: Self::Output) -> Result<Buffer> {
        Ok(pprof.into())
    }
}

/// The objects in use now, as gzip-compressed pprof; null without a heap profile. This thread waits for some milliseconds.
#[napi]
pub fn objects_in_use() -> Option<Buffer> {
    let read = || ffi_guard(None, || binding::objects_in_use().map(|profile| profile.pprof()));
    runtime::while_waiting(read).map(Buffer::from)
}
