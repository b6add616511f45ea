//! An HTTP/1.1 receiver that does exactly what a test says, on the socket itself: real answers, broken ones, none.

use flate2::read::GzDecoder;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What arrived.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// Without its compression.
    pub body: Vec<u8>,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// What the receiver does with a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A proper answer; the connection stays open.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8> },
    /// These bytes, then the connection is closed.
    Bytes(Vec<u8>),
    /// Nothing; the connection is reset.
    Reset,
    /// Nothing; the connection stays open.
    Silence,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self::Answer { status, headers: vec![], body: vec![] }
    }

    pub fn ok() -> Self {
        Self::protobuf(200, vec![0x0a, 0x00])
    }

    pub fn protobuf(status: u16, body: Vec<u8>) -> Self {
        Self::Answer { status, headers: vec![("Content-Type", "application/x-protobuf".to_owned())], body }
    }

    pub fn with(self, name: &'static str, value: impl Into<String>) -> Self {
        match self {
            Self::Answer { status, mut headers, body } => {
                headers.push((name, value.into()));
                Self::Answer { status, headers, body }
            }
            other => other,
        }
    }
}

type Script = Box<dyn FnMut(usize, &Received) -> Reply + Send>;

struct Shared {
    script: Mutex<Script>,
    received: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    ends: AtomicBool,
    tls: Option<Arc<ServerConfig>>,
}

pub struct ScriptedHttp {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

impl ScriptedHttp {
    /// Answers request number n (from 0) as `script` says.
    pub fn start(script: impl FnMut(usize, &Received) -> Reply + Send + 'static) -> Self {
        Self::start_with(None, script)
    }

    pub fn start_with(
        tls: Option<Arc<ServerConfig>>,
        script: impl FnMut(usize, &Received) -> Reply + Send + 'static,
    ) -> Self {
        Self::serve_on(TcpListener::bind("127.0.0.1:0").unwrap(), tls, script)
    }

    fn serve_on(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        script: impl FnMut(usize, &Received) -> Reply + Send + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            received: Mutex::default(),
            connections: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            tls,
        });
        let accepting = std::thread::spawn({
            let shared = shared.clone();
            move || {
                for stream in listener.incoming() {
                    if shared.ends.load(Ordering::SeqCst) {
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

    pub fn received(&self) -> Vec<Received> {
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
        self.shared.ends.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let socket = stream.try_clone().unwrap();
        // A test that fails must not leave threads that wait for ever.
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let ended = match &self.tls {
            Some(config) => {
                let connection = ServerConnection::new(config.clone()).unwrap();
                self.serve_requests(BufReader::new(StreamOwned::new(connection, stream)), &socket)
            }
            None => self.serve_requests(BufReader::new(stream), &socket),
        };
        // A receiver sees all kinds of ends; what matters is what the exporter made of them.
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
                Reply::Answer { status, headers, body } => {
                    let mut answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
                    for (name, value) in headers {
                        answer += &format!("{name}: {value}\r\n");
                    }
                    answer += "\r\n";
                    stream.get_mut().write_all(&[answer.as_bytes(), &body].concat())?;
                    stream.get_mut().flush()?;
                }
                Reply::Bytes(bytes) => {
                    stream.get_mut().write_all(&bytes)?;
                    return stream.get_mut().flush();
                }
                Reply::Reset => return SockRef::from(socket).set_linger(Some(Duration::ZERO)),
                Reply::Silence => {
                    let _ = stream.read(&mut [0]);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Reads one request; `None` when the client closed instead.
fn read_request(stream: &mut impl BufRead) -> io::Result<Option<Received>> {
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
    // The second line of HTTP/2's preface, `SM`, has no target.
    let Some((method, rest)) = lines[0].split_once(' ') else { return Ok(None) };
    let (method, target) = (method.to_owned(), rest.split(' ').next().unwrap().to_owned());
    let headers: Vec<_> = lines[1..]
        .iter()
        .map(|line| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap())
        .collect();
    let mut received = Received { method, target, headers, body: vec![] };
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

/// A socket on a port of its own; nothing comes in before it listens.
fn bound_socket() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::from("127.0.0.1:0".parse::<SocketAddr>().unwrap())).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

fn listen_at_last(socket: Socket, script: impl FnMut(usize, &Received) -> Reply + Send + 'static) -> ScriptedHttp {
    socket.listen(128).unwrap();
    ScriptedHttp::serve_on(socket.into(), None, script)
}

/// A port that refuses connections, and that nobody else can take meanwhile.
pub struct Refusing {
    socket: Socket,
    pub port: u16,
}

impl Refusing {
    pub fn open() -> Self {
        let (socket, address) = bound_socket();
        Self { socket, port: address.port() }
    }

    /// From now on a receiver listens on the port.
    pub fn become_receiver(self, script: impl FnMut(usize, &Received) -> Reply + Send + 'static) -> ScriptedHttp {
        listen_at_last(self.socket, script)
    }
}

/// A listener whose queue is full: connecting to it gets no answer at all, as behind a firewall that drops packets.
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

    /// The firewall opens: from now on a receiver listens on the port.
    pub fn become_receiver(self, script: impl FnMut(usize, &Received) -> Reply + Send + 'static) -> ScriptedHttp {
        drop(self.fillers);
        listen_at_last(self.socket, script)
    }
}
