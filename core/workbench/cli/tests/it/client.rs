//! HTTP/1.1 and gRPC requests to the server under test, as exporters and browsers send them.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// A complete response.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: HeaderMap,
}

impl HttpResponse {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// `grpc-status`, from the trailers or, for an error, from the headers.
    pub fn grpc_status(&self) -> &str {
        let value = self.trailers.get("grpc-status").or(self.headers.get("grpc-status"));
        value.expect("grpc-status").to_str().unwrap()
    }
}

pub const PROFILES: &str = "/v1development/profiles";
pub const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

pub fn get(address: &str, path: &str) -> HttpResponse {
    http(address, Method::GET, path, &[], b"")
}

pub fn http(address: &str, method: Method, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpResponse {
    exchange(address, Version::HTTP_11, method, path, headers, body)
}

/// Posts protobuf as an OTLP/HTTP exporter does.
pub fn post(address: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpResponse {
    let mut all = vec![("content-type", "application/x-protobuf"), ("otlp-profiles-development-version", "1")];
    all.retain(|(name, _)| !headers.iter().any(|(other, _)| other == name));
    all.extend(headers);
    http(address, Method::POST, PROFILES, &all, body)
}

/// Calls a gRPC method with one message.
pub fn grpc(address: &str, path: &str, headers: &[(&str, &str)], message: &[u8], compressed: bool) -> HttpResponse {
    let mut framed = vec![u8::from(compressed)];
    framed.extend((message.len() as u32).to_be_bytes());
    framed.extend(message);
    grpc_body(address, path, headers, &framed)
}

pub fn grpc_body(address: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpResponse {
    let mut all = vec![("content-type", "application/grpc"), ("te", "trailers")];
    all.extend(headers);
    exchange(address, Version::HTTP_2, Method::POST, path, &all, body)
}

fn exchange(
    address: &str,
    version: Version,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> HttpResponse {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let uri = if version == Version::HTTP_2 { format!("http://{address}{path}") } else { path.to_owned() };
        let mut request = Request::builder().method(method).uri(uri).version(version);
        if version == Version::HTTP_11 && !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", address);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
        let response = if version == Version::HTTP_2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        };
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let collected = response.into_body().collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        HttpResponse { status, headers, body: collected.to_bytes().to_vec(), trailers }
    })
}
