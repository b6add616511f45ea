//! Native methods of `io.spanprof.Native` for requests of the program's web server: their ends, and pulls of profiles. As in
//! `api`, no panic and no Java exception leaves this file.

use std::time::Duration;

use jni::objects::{JByteArray, JLongArray};
use jni::sys::jlong;
use spanprof_aggregate::context::{link_of_hex, parse_id, ContextRow};
use spanprof_profiler::binding::{self, HttpRequest};
use spanprof_profiler::{RequestEnd, RootSpanEnd};

use crate::convert::{self, native_methods, read_words, text_of, texts_of, LocalRef};

native_methods! {
    /// A local root span with a span processor begins in the context `words`: trace id and span id in hex.
    fn Java_io_spanprof_Native_beginRootSpan(env, _class, words: JLongArray<'_>, ids: JByteArray<'_>) {
        let row = read_words(env, &words)?.row();
        if let [trace_id, span_id] = &texts_of(env, &ids)?[..] {
            binding::begin_root_span(&row, link_of_hex(trace_id, span_id));
        }
        Ok(())
    }

    /// The end of a local root span: trace id and span id in hex, its name, method and route of its request.
    fn Java_io_spanprof_Native_endRootSpan(env, _class, texts: JByteArray<'_>, nanos: jlong, is_error: bool) {
        let texts = texts_of(env, &texts)?;
        if let [trace_id, span_id, name, method, route] = &texts[..] {
            binding::end_root_span(&RootSpanEnd {
                trace_id: parse_id(trace_id).unwrap_or_default(),
                span_id: parse_id(span_id).unwrap_or_default(),
                duration: Duration::from_nanos(nanos.try_into().unwrap_or(0)),
                name,
                method,
                route,
                is_error,
            });
        }
        Ok(())
    }

    /// The route of the request with the context `words` became known.
    fn Java_io_spanprof_Native_nameRequest(env, _class, words: JLongArray<'_>, endpoint: JByteArray<'_>) {
        binding::name_request(&read_words(env, &words)?.row(), &text_of(env, &endpoint)?);
        Ok(())
    }

    /// Attributes of a tracing library's resource: key, value, key, value, ….
    fn Java_io_spanprof_Native_adoptResource(env, _class, attributes: JByteArray<'_>) {
        let texts = texts_of(env, &attributes)?;
        binding::adopt_resource(texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect());
        Ok(())
    }

    /// Whether the profiler may find tracer providers and install middlewares.
    fn Java_io_spanprof_Native_followsRequests(_env, _class) -> bool {
        Ok(binding::follows_requests())
    }

    /// A client span begins below a local root.
    fn Java_io_spanprof_Native_beginClientSpan(_env, _class, root: jlong, span: jlong) {
        let row = ContextRow { local_root_span_id: root.to_ne_bytes(), ..ContextRow::default() };
        binding::begin_client_span(&row, span.to_ne_bytes());
        Ok(())
    }

    /// The end of a client span that `beginClientSpan` reported.
    fn Java_io_spanprof_Native_endClientSpan(env, _class, span: jlong, name: JByteArray<'_>, nanos: jlong) {
        let duration = Duration::from_nanos(nanos.try_into().unwrap_or(0));
        binding::end_client_span(span.to_ne_bytes(), &text_of(env, &name)?, duration);
        Ok(())
    }

    /// A request begins in a filter, in the context `words`, with trace id and span id of its caller in hex: the word of its local root;
    /// 0 if its end is not to be reported.
    fn Java_io_spanprof_Native_beginRequest(env, _class, words: JLongArray<'_>, ids: JByteArray<'_>) -> jlong {
        let row = read_words(env, &words)?.row();
        let caller = match &texts_of(env, &ids)?[..] {
            [trace_id, span_id] => link_of_hex(trace_id, span_id),
            _ => Default::default(),
        };
        Ok(binding::begin_request(&row, caller).map_or(0, i64::from_ne_bytes))
    }

    /// The end of a request that `beginRequest` returned.
    fn Java_io_spanprof_Native_endRequest(
        env, _class, request: jlong, endpoint: JByteArray<'_>, nanos: jlong, is_error: bool
    ) {
        binding::end_request(&RequestEnd {
            trace_id: [0; 16],
            local_root_span_id: request.to_ne_bytes(),
            duration: Duration::from_nanos(nanos.try_into().unwrap_or(0)),
            endpoint: &text_of(env, &endpoint)?,
            is_error,
        });
        Ok(())
    }

    /// A handler of pulls was created.
    fn Java_io_spanprof_Native_servePulls(_env, _class) {
        binding::serve_pulls();
        Ok(())
    }

    /// Answers a request for a profile: method, path of the handler, path after it, query, then names and values of headers.
    /// Returns the length of the packed head (status, then names and values of headers), the head, and the body. Null on failure.
    fn Java_io_spanprof_Native_pull(env, _class, head: JByteArray<'_>, body: JByteArray<'_>) -> LocalRef {
        let head = texts_of(env, &head)?;
        let [method, mount, rest, query, headers @ ..] = &head[..] else { return Ok(LocalRef::default()) };
        let headers = headers.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        let request = HttpRequest::mounted(method, mount, rest, query, headers, convert::bytes_of(env, &body)?);
        let response = binding::pull(&request, &|| false);
        let headers = response.headers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let head = convert::pack(std::iter::once(response.status.to_string()).chain(headers));
        let mut bytes = (head.len() as u32).to_be_bytes().to_vec();
        bytes.extend(head);
        bytes.extend(response.body);
        Ok(LocalRef(env.byte_array_from_slice(&bytes)?.into_raw()))
    }
}
