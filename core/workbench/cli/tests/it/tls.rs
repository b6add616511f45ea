//! Sources at https:// addresses, with a certificate of an own authority. The server is a TLS proxy before `serve`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::fixture::{encoded, number, shop, spanprof, Serve, TestDirectory};

const PROXY: &str = r#"
import http.server, ssl, sys, urllib.request
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = urllib.request.urlopen(sys.argv[1] + self.path).read()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

struct TlsProxy(Child);

impl Drop for TlsProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_behind_tls_is_read_if_its_authority_is_trusted() {
    let (home, profiles) = (TestDirectory::new(), TestDirectory::new());
    profiles.file("a.otlp.pb", &encoded(&shop("checkout")));
    let serve = Serve::start(profiles.path(), &[]);
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| home.path().join(name).to_str().unwrap().to_owned());
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key, "-out", &certificate])
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    let mut proxy = Command::new("python3")
        .args(["-c", PROXY, &serve.url(), &certificate, &key])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let _proxy = TlsProxy(proxy);
    let url = format!("https://127.0.0.1:{}", port.trim());
    let trusted = spanprof(&["top", &url, "--type", "cpu", "--json", "--ca-cert", &certificate]);
    assert_eq!(number(&trusted.stdout, "total"), 1_000_000_000, "{trusted:?}");
    let plain = spanprof(&["top", &serve.url().replace("http", "https")]);
    assert!(plain.code == 1 && plain.stderr.contains("TLS failed: received corrupt message of type InvalidContentType; if the receiver has no TLS, write http://"), "{plain:?}");
    let refused = spanprof(&["top", &url]);
    assert!(refused.code == 1 && refused.stderr.contains("cannot query https://127.0.0.1"), "{refused:?}");
    assert!(refused.stderr.contains("TLS failed") && refused.stderr.contains("--ca-cert FILE"), "{refused:?}");
    let absent = spanprof(&["top", &url, "--ca-cert", "/nonexistent.pem"]);
    assert!(absent.code == 1 && absent.stderr.contains("/nonexistent.pem"), "{absent:?}");
}
