//! Client of the daemon's API over its Unix socket: one connection per request, with `Connection: close`.

use super::message::{DigestRequest, Empty, RebuildRequest, RepairPlanRequest, ScrubRequest, VERSION};
use super::note::{self, Note};
use crate::report;
use rustix::net::SendFlags;
use serde::Serialize;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Seconds that the daemon waits for the end of a job before it answers with its progress.
const WAIT: u64 = 30;

/// Most bytes of an answer and of its head.
const MAX_ANSWER: u64 = 64 << 20;
const MAX_HEAD: u64 = 64 << 10;

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon listens on the socket.
    #[error("no daemon answers at {}: {source}. Start one with `gabion daemon run CONFIG`, or name its socket with --socket", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The daemon belongs to another user.
    #[error("the daemon at {} belongs to another user: only that user, root and readers of its group can use it", path.display())]
    NotOurs {
        /// The socket.
        path: PathBuf,
    },
    /// The connection failed or timed out.
    #[error("the daemon at {}: {source}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The answer cannot be parsed, or has another version.
    #[error("the daemon at {} uses another version of the API than this program: restart it with this version", path.display())]
    UnknownProtocol {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon refused the request.
    #[error("daemon: {0}")]
    Refused(String),
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Status of the daemon, or of one source.
    Status {
        /// Name of the source.
        source: Option<String>,
    },
    /// Nothing is scanned, encoded or scrubbed until `Resume`; changes are recorded.
    Pause {
        /// Name of the source; all by default.
        source: Option<String>,
    },
    /// Goes on after `Pause`.
    Resume {
        /// Name of the source; all by default.
        source: Option<String>,
    },
    /// Approves a held change-set.
    Approve {
        /// Name of the source.
        source: String,
        /// Digest of the change-set.
        digest: String,
    },
    /// Scrubs now.
    Scrub {
        /// Name of the source.
        source: String,
        /// Only this percentage of the files, the longest unscrubbed first.
        percent: Option<u8>,
        /// Only files last scrubbed more than this many seconds ago.
        older_than: Option<u64>,
        /// Only files whose last complete verification is older than their policy's interval.
        due: bool,
        /// Start over, even if the last scrub was interrupted.
        restart: bool,
        /// Repair damaged files at once.
        repair: bool,
        /// Answer when the job has ended.
        wait: bool,
    },
    /// Plans a repair and carries it out.
    Repair {
        /// Name of the source.
        source: String,
        /// Only files that a scrub found damaged.
        known: bool,
        /// Skip files that were written since they were protected.
        keep_changed: bool,
        /// Also restore missing files.
        missing: bool,
        /// Answer when the job has ended.
        wait: bool,
    },
    /// Protects changed files now, without waiting for their quiet period.
    Protect {
        /// Name of the source.
        source: String,
        /// Answer when the job has ended.
        wait: bool,
    },
    /// Rebuilds now.
    Rebuild {
        /// Name of the source.
        source: String,
        /// Only these targets.
        targets: Vec<String>,
        /// Confirmation that targets are lost.
        agree: Option<String>,
        /// Answer when the job has ended.
        wait: bool,
    },
    /// Reloads the configuration.
    Reload {},
    /// Stops the daemon.
    Stop {},
}

impl Request {
    /// The source of a request about a single one.
    pub fn source(&self) -> Option<&str> {
        match self {
            Request::Status { source } | Request::Pause { source } | Request::Resume { source } => {
                source.as_deref()
            }
            Request::Approve { source, .. }
            | Request::Scrub { source, .. }
            | Request::Repair { source, .. }
            | Request::Protect { source, .. }
            | Request::Rebuild { source, .. } => Some(source),
            Request::Reload {} | Request::Stop {} => None,
        }
    }
}

/// A client of a daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
}

impl Client {
    /// Connects once, to find out whether a daemon answers.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`], [`ClientError::NotOurs`].
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let client = Client { path: path.to_owned() };
        client.open()?;
        Ok(client)
    }

    /// Sends a request and waits for the answer. The answer of a job that was waited for is its report with `outcome`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn ask(&mut self, request: &Request) -> Result<Value, ClientError> {
        let all_or = |source: &Option<String>, verb: &str| match source {
            Some(source) => format!("{}/{verb}", of(source)),
            None => format!("/api/v1/{verb}"),
        };
        match request {
            Request::Status { source } => self.status(source.as_deref()),
            Request::Pause { source } => self.post(&all_or(source, "pause"), &Empty {}),
            Request::Resume { source } => self.post(&all_or(source, "resume"), &Empty {}),
            Request::Approve { source, digest } => {
                self.post(&format!("{}/approve", of(source)), &DigestRequest { digest: digest.clone() })
            }
            Request::Scrub { source, percent, older_than, due, restart, repair, wait } => {
                let body = ScrubRequest {
                    percent: *percent,
                    older_than_seconds: *older_than,
                    due: *due,
                    restart: *restart,
                    repair: *repair,
                };
                self.work(&format!("{}/scrub", of(source)), &body, *wait)
            }
            Request::Repair { source, known, keep_changed, missing, wait } => {
                let body =
                    RepairPlanRequest { known: *known, keep_changed: *keep_changed, missing: *missing };
                let plan = self.work(&format!("{}/repair/plan", of(source)), &body, true)?;
                let Some(digest) = plan["digest"].as_str() else { return Err(self.unknown()) };
                if plan["outcome"] == "stopped" {
                    return Ok(plan);
                }
                let body = DigestRequest { digest: digest.to_owned() };
                self.work(&format!("{}/repair", of(source)), &body, *wait)
            }
            Request::Protect { source, wait } => {
                self.work(&format!("{}/protect", of(source)), &Empty {}, *wait)
            }
            Request::Rebuild { source, targets, agree, wait } => {
                let body = RebuildRequest { targets: targets.clone(), agree: agree.clone() };
                self.work(&format!("{}/rebuild", of(source)), &body, *wait)
            }
            Request::Reload {} => self.post("/api/v1/reload", &Empty {}),
            Request::Stop {} => self.post("/api/v1/stop", &Empty {}),
        }
    }

    fn status(&self, source: Option<&str>) -> Result<Value, ClientError> {
        let mut status = self.get("/api/v1/status")?;
        let Some(name) = source else { return Ok(status) };
        let of_name = self.get(&of(name))?;
        status["sources"] = Value::Array(vec![of_name["source"].clone()]);
        Ok(status)
    }

    /// Starts a job, and waits for its end if that is wanted.
    fn work(&self, path: &str, body: &impl Serialize, wait: bool) -> Result<Value, ClientError> {
        let mut job = self.post(path, body)?["job"].take();
        if !wait {
            let mut queued = serde_json::Map::new();
            queued.insert("version".to_owned(), VERSION.into());
            queued.insert("queued".to_owned(), job["work"].take());
            queued.insert("source".to_owned(), job["source"].take());
            queued.insert("job_id".to_owned(), job["id"].take());
            return Ok(Value::Object(queued));
        }
        let Some(id) = job["id"].as_u64() else { return Err(self.unknown()) };
        while matches!(job["state"].as_str(), Some("queued" | "running")) {
            job = self.get(&format!("/api/v1/jobs/{id}?wait={WAIT}"))?["job"].take();
        }
        match job["state"].as_str() {
            Some("ended") => {
                let Value::Object(mut report) = job["report"].take() else { return Err(self.unknown()) };
                report.insert("version".to_owned(), VERSION.into());
                report.insert("outcome".to_owned(), job["outcome"].take());
                Ok(Value::Object(report))
            }
            Some("failed") => {
                Err(ClientError::Refused(job["error"].as_str().unwrap_or("it failed").to_owned()))
            }
            _ => Err(self.unknown()),
        }
    }

    fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: gabion\r\nConnection: close\r\n\r\n"))
    }

    fn post(&self, path: &str, body: &impl Serialize) -> Result<Value, ClientError> {
        let body = report::line(body);
        self.exchange(&format!(
            "POST {path} HTTP/1.1\r\nHost: gabion\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    fn open(&self) -> Result<UnixStream, ClientError> {
        let nobody = |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NotOurs { path: self.path.clone() },
            _ => ClientError::NotRunning { path: self.path.clone(), source },
        };
        let stream = UnixStream::connect(&self.path).map_err(nobody)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(nobody)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(nobody)?;
        Ok(stream)
    }

    /// Sends a request and reads its answer.
    fn exchange(&self, request: &str) -> Result<Value, ClientError> {
        let stream = self.open()?;
        match send(&stream, request.as_bytes()) {
            // A daemon that refuses the connection sends an error before it closes it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            sent => sent.map_err(|error| self.broken(error))?,
        }
        let (status, body) = read_answer(stream).map_err(|error| self.broken(error))?;
        let answer: Value = serde_json::from_slice(&body).map_err(|_| self.unknown())?;
        if answer["version"] != VERSION {
            return Err(self.unknown());
        }
        match status {
            200..=299 => Ok(answer),
            _ => Err(ClientError::Refused(
                answer["error"]["message"].as_str().unwrap_or("it failed").to_owned(),
            )),
        }
    }

    fn broken(&self, source: io::Error) -> ClientError {
        match source.kind() {
            io::ErrorKind::InvalidData => self.unknown(),
            _ => ClientError::Broken { path: self.path.clone(), source },
        }
    }

    fn unknown(&self) -> ClientError {
        ClientError::UnknownProtocol { path: self.path.clone() }
    }
}

/// Path of a source. Other characters than those of names are encoded: then the daemon has no such source.
fn of(source: &str) -> String {
    let mut path = "/api/v1/sources/".to_owned();
    for byte in source.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => path.push(char::from(byte)),
            _ => path += &format!("%{byte:02X}"),
        }
    }
    path
}

/// Sends with `MSG_NOSIGNAL`: a closed connection gives an error instead of `SIGPIPE`.
fn send(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::net::send(stream, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Status and body of an answer with `Content-Length`; `InvalidData` if it is no such answer.
fn read_answer(stream: impl Read) -> io::Result<(u16, Vec<u8>)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = BufReader::new(stream).take(MAX_HEAD);
    let line = |text: &mut String, head: &mut io::Take<_>| -> io::Result<()> {
        text.clear();
        match BufRead::read_line(head, text)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ if !text.ends_with('\n') => Err(invalid()),
            _ => Ok(()),
        }
    };
    let mut text = String::new();
    line(&mut text, &mut head)?;
    let mut words = text.split(' ');
    let status = match (words.next(), words.next().map(str::trim_end).and_then(|code| code.parse().ok())) {
        (Some("HTTP/1.1" | "HTTP/1.0"), Some(status)) => status,
        _ => return Err(invalid()),
    };
    let mut length = None;
    loop {
        line(&mut text, &mut head)?;
        let header = text.trim_end();
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').ok_or_else(invalid)?;
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse::<u64>().ok();
        }
    }
    let length = length.filter(|length| *length <= MAX_ANSWER).ok_or_else(invalid)?;
    let mut body = Vec::new();
    head.into_inner().take(length).read_to_end(&mut body)?;
    match body.len() as u64 == length {
        true => Ok((status, body)),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The running daemon that serves a repository.
pub fn find(repository: &Path) -> Option<(Client, Note)> {
    let note = note::find(repository)?;
    Some((Client::connect(&note.socket).ok()?, note))
}

#[cfg(test)]
mod tests {
    use super::{of, read_answer};
    use std::io::ErrorKind;

    #[test]
    fn answers_are_read_and_malformed_ones_refused() {
        let good = b"HTTP/1.1 409 Conflict\r\nContent-LENGTH: 2\r\nx: y\r\n\r\n{}more";
        assert_eq!(read_answer(&good[..]).unwrap(), (409, b"{}".to_vec()));
        for (wrong, kind) in [
            (&b""[..], ErrorKind::UnexpectedEof),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", ErrorKind::UnexpectedEof),
            (b"HTTP/1.1 200 OK\r\n\r\n{}", ErrorKind::InvalidData),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}", ErrorKind::InvalidData),
            (b"HTTP/1.1 200 OK\r\nnothing\r\n\r\n{}", ErrorKind::InvalidData),
            (b"{\"version\":1,\"error\":\"no\"}\n", ErrorKind::InvalidData),
            (&[b'x'; 100_000], ErrorKind::InvalidData),
        ] {
            assert_eq!(read_answer(wrong).unwrap_err().kind(), kind, "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn names_of_sources_cannot_lead_elsewhere() {
        assert_eq!(of("photos-1_a.b"), "/api/v1/sources/photos-1_a.b");
        assert_eq!(of("../stop?x\r\n"), "/api/v1/sources/..%2Fstop%3Fx%0D%0A");
    }
}
