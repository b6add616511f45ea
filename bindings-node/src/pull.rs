//! Requests for profiles (`/debug/pprof`) that a web framework received. A pull blocks for its duration, on a thread of its own:
//! a thread of libuv's pool would be lost to the program for up to a minute.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use napi::bindgen_prelude::{Buffer, Env, JsValue, Object, ToNapiValue};
use napi::{Error, Result};
use napi_derive::napi;
use spanprof_profiler::binding::{self, ffi_guard, HttpRequest, HttpResponse};

/// A handler of pulls was created.
#[napi]
pub fn serve_pulls() {
    ffi_guard((), binding::serve_pulls);
}

/// The response to a pull.
#[napi(object)]
pub struct PullAnswer {
    /// Status code.
    pub status: u32,
    /// Alternating names and values.
    pub headers: Vec<String>,
    /// Body.
    pub body: Buffer,
}

impl From<HttpResponse> for PullAnswer {
    fn from(response: HttpResponse) -> Self {
        let headers = response.headers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        Self { status: u32::from(response.status), headers: headers.collect(), body: response.body.into() }
    }
}

/// A promise of what `work` returns on a thread of its own, converted on this one.
pub fn on_new_thread<T: Send + 'static, V: ToNapiValue + 'static>(
    env: &Env,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
    convert: fn(T) -> V,
) -> Result<Object<'static>> {
    let (deferred, promise) = env.create_deferred()?;
    let run = move || {
        let value = work();
        deferred.resolve(move |_| Ok(convert(value)));
    };
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map_err(|error| Error::from_reason(format!("no thread {name}: {error}")))?;
    Ok(Object::from_raw(env.raw(), promise.raw()))
}

/// A pull that can be canceled.
#[napi]
#[derive(Default)]
pub struct PullCall {
    has_left: Arc<AtomicBool>,
}

#[napi]
impl PullCall {
    #[napi(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// A promise of the response. `mount` is the path of the handler and `rest` the path after it; `headers` are alternating names
    /// and values.
    #[napi]
    #[allow(clippy::too_many_arguments)] // JavaScript passes the parts of the request.
    pub fn run(
        &self,
        env: Env,
        method: String,
        mount: String,
        rest: String,
        query: String,
        headers: Vec<String>,
        body: Buffer,
    ) -> Result<Object<'static>> {
        let pairs = headers.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        let request = HttpRequest::mounted(&method, &mount, &rest, &query, pairs, body.to_vec());
        let has_left = self.has_left.clone();
        let collect = move || {
            let failed = HttpResponse { status: 500, ..HttpResponse::default() };
            ffi_guard(failed, || binding::pull(&request, &|| has_left.load(Ordering::Relaxed)))
        };
        on_new_thread(&env, "spanprof-pull", collect, PullAnswer::from)
    }

    /// Ends the collection within a quarter of a second.
    #[napi]
    pub fn cancel(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }
}
