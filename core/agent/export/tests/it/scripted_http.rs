//! An HTTP/1.1 receiver that follows a script, directly on the socket: valid, malformed and missing responses.

use flate2::read::GzDecoder;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A received request.
#[derive(Clone, Debug)]
pub struct ReceivedPost {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// Without its compression.
    pub body: Vec<u8>,
}

impl ReceivedPost {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Response to a request.
#[derive(Clone, Debug)]
pub enum HttpReply {
    /// A valid response; the connection stays open.
    Response { status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8> },
    /// These bytes, then the connection is closed.
    Bytes(Vec<u8>),
    /// No response; the connection is reset.
    Reset,
    /// No response; the connection stays open.
    Silence,
}

impl HttpReply {
    pub fn status(status: u16) -> Self {
        Self::Response { status, headers: vec![], body: vec![] }
    }

    pub fn ok() -> Self {
        Self::protobuf(200, vec![0x0a, 0x00])
    }

    pub fn protobuf(status: u16, body: Vec<u8>) -> Self {
        Self::Response { status, headers: vec![("Content-Type", "application/x-protobuf".to_owned())], body }
    }

    pub fn with(self, name: &'static str, value: impl Into<String>) -> Self {
        match self {
            Self::Response { status, mut headers, body } => {
                headers.push((name, value.into()));
                Self::Response { status, headers, body }
            }
            other => other,
        }
    }
}

type HttpScript = Box<dyn FnMut(usize, &ReceivedPost) -> HttpReply + Send>;

struct HttpReceiverState {
    script: Mutex<HttpScript>,
    received: Mutex<Vec<ReceivedPost>>,
    connections: AtomicUsize,
    stopped: AtomicBool,
    tls: Option<Arc<ServerConfig>>,
}

pub struct ScriptedHttp {
    shared: Arc<HttpReceiverState>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

impl ScriptedHttp {
    /// Responds to request number n (from 0) with the result of `script`.
    pub fn start(script: impl FnMut(usize, &ReceivedPost) -> HttpReply + Send + 'static) -> Self {
        Self::start_with(None, script)
    }

    pub fn start_with(
        tls: Option<Arc<ServerConfig>>,
        script: impl FnMut(usize, &ReceivedPost) -> HttpReply + Send + 'static,
    ) -> Self {
        Self::serve_on(TcpListener::bind("127.0.0.1:0").unwrap(), tls, script)
    }

    fn serve_on(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        script: impl FnMut(usize, &ReceivedPost) -> HttpReply + Send + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(HttpReceiverState {
            script: Mutex::new(Box::new(script)),
            received: Mutex::default(),
            connections: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            tls,
        });
        let accepting = std::thread::spawn({
            let shared = shared.clone();
            move || {
                for stream in listener.incoming() {
                    if shared.stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    let Ok(stream) = stream else { continue };
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    let shared = shared.clone();
                    std::thread::spawn(move || shared.serve(stream));
                }
            }
        });
        Self { shared, address, accepting: Some(accepting) }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn received(&self) -> Vec<ReceivedPost> {
        self.shared.received.lock().unwrap().clone()
    }

    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.received().into_iter().map(|received| received.body).collect()
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for ScriptedHttp {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl HttpReceiverState {
    fn serve(&self, stream: TcpStream) {
        let socket = stream.try_clone().unwrap();
        // A failed test must not leave blocked threads.
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let ended = match &self.tls {
            Some(config) => {
                let connection = ServerConnection::new(config.clone()).unwrap();
                self.serve_requests(BufReader::new(StreamOwned::new(connection, stream)), &socket)
            }
            None => self.serve_requests(BufReader::new(stream), &socket),
        };
        // How the connection ended is checked on the side of the exporter.
        drop(ended);
    }

    fn serve_requests<S: Read + Write>(&self, mut stream: BufReader<S>, socket: &TcpStream) -> io::Result<()> {
        while let Some(received) = read_request(&mut stream)? {
            let number = {
                let mut all = self.received.lock().unwrap();
                all.push(received.clone());
                all.len() - 1
            };
            let reply = (self.script.lock().unwrap())(number, &received);
            match reply {
                HttpReply::Response { status, headers, body } => {
                    let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
                    for (name, value) in headers {
                        head += &format!("{name}: {value}\r\n");
                    }
                    head += "\r\n";
                    stream.get_mut().write_all(&[head.as_bytes(), &body].concat())?;
                    stream.get_mut().flush()?;
                }
                HttpReply::Bytes(bytes) => {
                    stream.get_mut().write_all(&bytes)?;
                    return stream.get_mut().flush();
                }
                HttpReply::Reset => return SockRef::from(socket).set_linger(Some(Duration::ZERO)),
                HttpReply::Silence => {
                    let _ = stream.read(&mut [0]);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Reads one request; `None` when the client closed the connection.
fn read_request(stream: &mut impl BufRead) -> io::Result<Option<ReceivedPost>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line == "\r\n" {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    // The line `SM` of the HTTP/2 preface has no target.
    let Some((method, rest)) = lines[0].split_once(' ') else { return Ok(None) };
    let (method, target) = (method.to_owned(), rest.split(' ').next().unwrap().to_owned());
    let headers: Vec<_> = lines[1..]
        .iter()
        .map(|line| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap())
        .collect();
    let mut received = ReceivedPost { method, target, headers, body: vec![] };
    let length = received.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    if received.header("content-encoding") == Some("gzip") {
        GzDecoder::new(body.as_slice()).read_to_end(&mut received.body)?;
    } else {
        received.body = body;
    }
    Ok(Some(received))
}

/// A socket bound to a free port, not listening.
fn bound_socket() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::from("127.0.0.1:0".parse::<SocketAddr>().unwrap())).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

fn listen(socket: Socket, script: impl FnMut(usize, &ReceivedPost) -> HttpReply + Send + 'static) -> ScriptedHttp {
    socket.listen(128).unwrap();
    ScriptedHttp::serve_on(socket.into(), None, script)
}

/// A bound port that refuses connections and cannot be taken by another process.
pub struct RefusingPort {
    socket: Socket,
    pub port: u16,
}

impl RefusingPort {
    pub fn open() -> Self {
        let (socket, address) = bound_socket();
        Self { socket, port: address.port() }
    }

    /// Starts a receiver on the port.
    pub fn become_receiver(
        self,
        script: impl FnMut(usize, &ReceivedPost) -> HttpReply + Send + 'static,
    ) -> ScriptedHttp {
        listen(self.socket, script)
    }
}

/// A listener with a full backlog: connection attempts get no response, as behind a firewall that drops packets.
pub struct BlackHole {
    socket: Socket,
    pub port: u16,
    fillers: Vec<TcpStream>,
}

impl BlackHole {
    pub fn open() -> Self {
        let (socket, address) = bound_socket();
        socket.listen(0).unwrap();
        let mut fillers = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(150)) {
            fillers.push(stream);
        }
        Self { socket, port: address.port(), fillers }
    }

    /// Starts a receiver on the port, as when the firewall opens.
    pub fn become_receiver(
        self,
        script: impl FnMut(usize, &ReceivedPost) -> HttpReply + Send + 'static,
    ) -> ScriptedHttp {
        drop(self.fillers);
        listen(self.socket, script)
    }
}
