//! Servers that receive notifications: HTTP and mail, as far as a client needs them, on sockets of loopback.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// A request of HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let of = |header: &'_ String| header.to_ascii_lowercase().starts_with(&format!("{name}: "));
        self.headers.iter().find(|header| of(header)).map(|header| &header[name.len() + 2..])
    }
}

/// A server with what it received.
pub(crate) struct Server<T> {
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<T>>>,
}

impl<T: Clone + Send + 'static> Server<T> {
    /// Listens; `serve` gets each connection with its number, and gives what it received, if all of it came.
    fn start(serve: impl Fn(TcpStream, usize) -> Option<T> + Send + Sync + 'static) -> Server<T> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let received: Arc<Mutex<Vec<T>>> = Arc::default();
        let (kept, serve) = (Arc::clone(&received), Arc::new(serve));
        std::thread::spawn(move || {
            for (number, connection) in listener.incoming().map_while(Result::ok).enumerate() {
                let (kept, serve) = (Arc::clone(&kept), Arc::clone(&serve));
                std::thread::spawn(move || {
                    if let Some(got) = serve(connection, number) {
                        kept.lock().unwrap().push(got);
                    }
                });
            }
        });
        Server { port, received }
    }

    pub(crate) fn received(&self) -> Vec<T> {
        self.received.lock().unwrap().clone()
    }

    /// Waits until something was received that fits, and gives it.
    pub(crate) fn until(&self, what: &str, fits: impl Fn(&T) -> bool) -> T {
        gabion_testkit::until_some(what, || self.received().into_iter().find(|got| fits(got)))
    }
}

fn read_request(stream: &mut impl Read) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let mut request = Request { line: lines.remove(0), headers: lines, body: Vec::new() };
    let length = request.header("content-length")?.parse().ok()?;
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

/// Answers each request with a status, by its number. A status of 0 is no answer at all, for ever.
pub(crate) fn http(status: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Server<(u16, Request)> {
    Server::start(move |mut stream, number| {
        let request = read_request(&mut stream)?;
        answer(&mut stream, status(number));
        Some((status(number), request))
    })
}

fn answer(stream: &mut impl Write, status: u16) {
    if status == 0 {
        loop {
            std::thread::park();
        }
    }
    let text = "a reason\u{1b}[31m\nin lines";
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    let _ = stream.flush();
}

/// The same with TLS.
pub(crate) fn https(identity: &Identity) -> Server<(u16, Request)> {
    let config = identity.server();
    Server::start(move |stream, _| {
        let mut stream = encrypted(stream, &config)?;
        let request = read_request(&mut stream)?;
        answer(&mut stream, 200);
        stream.conn.send_close_notify();
        let _ = stream.flush();
        Some((200, request))
    })
}

fn encrypted(
    stream: TcpStream,
    config: &Arc<ServerConfig>,
) -> Option<StreamOwned<ServerConnection, TcpStream>> {
    let mut connection = ServerConnection::new(Arc::clone(config)).unwrap();
    let mut stream = stream;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).ok()?;
    }
    Some(StreamOwned::new(connection, stream))
}

/// A certificate for `localhost`, signed by an authority of its own.
pub(crate) struct Identity {
    pub(crate) authority: PathBuf,
    chain: Vec<CertificateDer<'static>>,
    key: PathBuf,
}

impl Identity {
    pub(crate) fn new(directory: &Path) -> Identity {
        let openssl = |arguments: &[&str]| {
            let mut command = Command::new("openssl");
            let done = command.current_dir(directory).args(arguments).stderr(Stdio::null()).status();
            assert!(done.unwrap().success(), "openssl {arguments:?}");
        };
        let subject = ["-subj", "/CN=test", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
        openssl(
            &[&["req", "-x509", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem"], &subject[..]].concat(),
        );
        openssl(&[&["req", "-keyout", "server.key", "-out", "server.csr"], &subject[..]].concat());
        std::fs::write(directory.join("extensions"), "subjectAltName=DNS:localhost\n").unwrap();
        openssl(&[
            "x509",
            "-req",
            "-days",
            "2",
            "-in",
            "server.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-extfile",
            "extensions",
            "-out",
            "server.pem",
        ]);
        let chain = vec![CertificateDer::from_pem_file(directory.join("server.pem")).unwrap()];
        Identity { authority: directory.join("ca.pem"), chain, key: directory.join("server.key") }
    }

    fn server(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from_pem_file(&self.key).unwrap();
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(config.with_no_client_auth().with_single_cert(self.chain.clone(), key).unwrap())
    }
}

/// An e-mail as a server received it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mail {
    pub(crate) encrypted: bool,
    pub(crate) login: Option<String>,
    pub(crate) from: String,
    pub(crate) to: Vec<String>,
    pub(crate) data: String,
}

/// A mail server. With an identity it offers STARTTLS, and a login after that.
pub(crate) fn smtp(identity: Option<&Identity>) -> Server<Mail> {
    let config = identity.map(Identity::server);
    Server::start(move |mut stream, _| {
        stream.write_all(b"220 localhost ESMTP\r\n").ok()?;
        let mut mail = Mail::default();
        match session(&mut stream, &mut mail, config.is_some())? {
            Ended::Sent => Some(mail),
            Ended::StartTls => {
                let mut stream = encrypted(stream, config.as_ref()?)?;
                mail.encrypted = true;
                session(&mut stream, &mut mail, false)?;
                Some(mail)
            }
        }
    })
}

enum Ended {
    Sent,
    StartTls,
}

fn session(stream: &mut (impl Read + Write), mail: &mut Mail, offers_tls: bool) -> Option<Ended> {
    loop {
        let line = read_line(stream)?;
        let upper = line.to_ascii_uppercase();
        let reply = match () {
            () if upper.starts_with("EHLO") && offers_tls => "250-localhost\r\n250 STARTTLS\r\n".to_owned(),
            () if upper.starts_with("EHLO") && mail.encrypted => {
                "250-localhost\r\n250 AUTH PLAIN\r\n".to_owned()
            }
            () if upper.starts_with("EHLO") => "250 localhost\r\n".to_owned(),
            () if upper == "STARTTLS" && offers_tls => {
                stream.write_all(b"220 go\r\n").ok()?;
                return Some(Ended::StartTls);
            }
            () if upper.starts_with("AUTH PLAIN ") => {
                mail.login = Some(line["AUTH PLAIN ".len()..].to_owned());
                "235 ok\r\n".to_owned()
            }
            () if upper.starts_with("MAIL FROM:") => {
                mail.from = line["MAIL FROM:".len()..].to_owned();
                "250 ok\r\n".to_owned()
            }
            () if upper.starts_with("RCPT TO:") => {
                mail.to.push(line["RCPT TO:".len()..].to_owned());
                "250 ok\r\n".to_owned()
            }
            () if upper == "DATA" => {
                stream.write_all(b"354 go\r\n").ok()?;
                loop {
                    let line = read_line(stream)?;
                    if line == "." {
                        break;
                    }
                    mail.data += &format!("{line}\n");
                }
                stream.write_all(b"250 ok\r\n").ok()?;
                stream.flush().ok()?;
                return Some(Ended::Sent);
            }
            () => "500 unknown\r\n".to_owned(),
        };
        stream.write_all(reply.as_bytes()).ok()?;
        stream.flush().ok()?;
    }
}

/// Byte by byte: what follows STARTTLS belongs to another reader.
fn read_line(stream: &mut impl Read) -> Option<String> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        match byte[0] {
            b'\n' => return Some(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned()),
            byte => line.push(byte),
        }
    }
}
