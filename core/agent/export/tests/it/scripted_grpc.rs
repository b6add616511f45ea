//! A gRPC receiver that follows a script: HTTP/2 by hyper, the gRPC layer written by hand.

use bytes::Bytes;
use flate2::read::{GzDecoder, GzEncoder};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::io::Read;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::sync::oneshot;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

#[derive(Clone, Debug)]
pub struct ReceivedCall {
    pub path: String,
    pub metadata: HeaderMap,
    /// Without framing and compression.
    pub body: Vec<u8>,
    pub was_compressed: bool,
}

#[derive(Clone, Debug)]
pub enum GrpcReply {
    /// A response with status OK and this message.
    Ok(Vec<u8>),
    /// The same, gzipped, as a Go server responds to a gzipped request.
    Gzipped(Vec<u8>),
    /// A status, with details.
    Status { code: i32, message: &'static str, details: Vec<u8> },
    /// An HTTP status without gRPC, as a load balancer sends it.
    Http(u16),
    /// A response that ends without a status.
    NoStatus,
    /// No response; the connection is closed.
    HangUp,
    /// No response; the connection stays open.
    Silence,
}

impl GrpcReply {
    pub fn status(code: i32, message: &'static str) -> Self {
        Self::Status { code, message, details: vec![] }
    }
}

type GrpcScript = Box<dyn FnMut(usize, &ReceivedCall) -> GrpcReply + Send>;

struct GrpcReceiverState {
    script: Mutex<GrpcScript>,
    received: Mutex<Vec<ReceivedCall>>,
    connections: AtomicUsize,
}

pub struct ScriptedGrpc {
    shared: Arc<GrpcReceiverState>,
    port: u16,
    end: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

impl ScriptedGrpc {
    /// Responds to call number n (from 0) with the result of `script`.
    pub fn start(script: impl FnMut(usize, &ReceivedCall) -> GrpcReply + Send + 'static) -> Self {
        Self::start_with(None, script)
    }

    pub fn start_with(
        tls: Option<Arc<ServerConfig>>,
        script: impl FnMut(usize, &ReceivedCall) -> GrpcReply + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(GrpcReceiverState {
            script: Mutex::new(Box::new(script)),
            received: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let (end, mut ended) = oneshot::channel();
        let serving = std::thread::spawn({
            let shared = shared.clone();
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                    loop {
                        tokio::select! {
                            _ = &mut ended => return,
                            accepted = listener.accept() => {
                                let (stream, _) = accepted.unwrap();
                                shared.connections.fetch_add(1, Ordering::SeqCst);
                                tokio::spawn(shared.clone().serve(stream, tls.clone().map(TlsAcceptor::from)));
                            }
                        }
                    }
                });
            }
        });
        Self { shared, port, end: Some(end), serving: Some(serving) }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn received(&self) -> Vec<ReceivedCall> {
        self.shared.received.lock().unwrap().clone()
    }

    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.received().into_iter().map(|received| received.body).collect()
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for ScriptedGrpc {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

impl GrpcReceiverState {
    async fn serve(self: Arc<Self>, stream: tokio::net::TcpStream, tls: Option<TlsAcceptor>) {
        match tls {
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    self.serve_calls(TokioIo::new(stream)).await;
                }
            }
            None => self.serve_calls(TokioIo::new(stream)).await,
        }
    }

    async fn serve_calls<S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static>(self: Arc<Self>, stream: S) {
        let hang_up = Arc::new(tokio::sync::Notify::new());
        let service = service_fn({
            let hang_up = hang_up.clone();
            move |request| self.clone().respond(request, hang_up.clone())
        });
        let connection =
            hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service);
        tokio::select! {
            _ = connection => {}
            () = hang_up.notified() => {}
        }
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        hang_up: Arc<tokio::sync::Notify>,
    ) -> Result<Response<BoxBody<Bytes, Infallible>>, hyper::Error> {
        let (parts, body) = request.into_parts();
        let framed = body.collect().await?.to_bytes();
        let was_compressed = framed[0] == 1;
        let mut body = Vec::new();
        if was_compressed {
            GzDecoder::new(&framed[5..]).read_to_end(&mut body).unwrap();
        } else {
            body.extend_from_slice(&framed[5..]);
        }
        let received =
            ReceivedCall { path: parts.uri.path().to_owned(), metadata: parts.headers, body, was_compressed };
        let number = {
            let mut all = self.received.lock().unwrap();
            all.push(received.clone());
            all.len() - 1
        };
        let reply = (self.script.lock().unwrap())(number, &received);
        let empty = || Full::new(Bytes::new());
        let grpc = Response::builder().header("content-type", "application/grpc");
        Ok(match reply {
            GrpcReply::Ok(_) | GrpcReply::Gzipped(_) => {
                let (flag, coding, message) = match reply {
                    GrpcReply::Gzipped(plain) => {
                        let mut gzipped = Vec::new();
                        GzEncoder::new(plain.as_slice(), flate2::Compression::fast())
                            .read_to_end(&mut gzipped)
                            .unwrap();
                        (1, "gzip", gzipped)
                    }
                    GrpcReply::Ok(message) => (0, "identity", message),
                    _ => unreachable!(),
                };
                let mut framed = vec![flag];
                framed.extend((message.len() as u32).to_be_bytes());
                framed.extend(message);
                let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from(0))]);
                let body = Full::new(Bytes::from(framed)).with_trailers(async move { Some(Ok(trailers)) });
                grpc.header("grpc-encoding", coding).body(body.boxed()).unwrap()
            }
            GrpcReply::Status { code, message, details } => {
                use base64::prelude::{Engine, BASE64_STANDARD_NO_PAD};
                let details = BASE64_STANDARD_NO_PAD.encode(details);
                grpc.header("grpc-status", code)
                    .header("grpc-message", message)
                    .header("grpc-status-details-bin", details)
                    .body(empty().boxed())
                    .unwrap()
            }
            GrpcReply::Http(status) => Response::builder().status(status).body(empty().boxed()).unwrap(),
            GrpcReply::NoStatus => grpc.body(empty().boxed()).unwrap(),
            GrpcReply::HangUp => {
                hang_up.notify_one();
                std::future::pending().await
            }
            GrpcReply::Silence => std::future::pending().await,
        })
    }
}
