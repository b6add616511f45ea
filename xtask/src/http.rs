//! A minimal HTTP client for servers on the loopback: one request per connection, no TLS. Called by `demo` and `live`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

/// GET on 127.0.0.1: status and body.
pub fn get(port: u16, path: &str) -> std::io::Result<(u16, String)> {
    get_with(port, path, "Accept: */*")
}

/// The same with one more header line.
pub fn get_with(port: u16, path: &str, header: &str) -> std::io::Result<(u16, String)> {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    // One write: a server that responds before it has read everything would reset the connection.
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n{header}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let response = String::from_utf8_lossy(&response).into_owned();
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other(format!("not an HTTP response: {head:.80}")))?;
    Ok((status, body.to_owned()))
}

/// A port that was free at the time of the call.
pub fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_body_are_separated() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = [0; 256];
            let read = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.0 404 Not Found\r\nContent-Type: text/plain\r\n\r\nno such page").unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        assert_eq!(get(port, "/x?y=1").unwrap(), (404, "no such page".to_owned()));
        assert!(serving.join().unwrap().starts_with("GET /x?y=1 HTTP/1.0\r\n"));
    }

    #[test]
    fn a_closed_port_is_an_error() {
        assert!(get(free_port().unwrap(), "/").is_err());
    }
}
