//! Client for the daemon's socket.

use super::note::{self, Note};
use super::protocol::{Answer, Request};
use rustix::net::SendFlags;
use serde_json::Value;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout for an answer. Longer tasks send progress every second.
const PATIENCE: Duration = Duration::from_secs(60);

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
    #[error("the daemon at {} belongs to another user: only that user and root can use it", path.display())]
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
    /// The answer cannot be parsed, or has another protocol version.
    #[error("the daemon at {} uses another protocol version", path.display())]
    UnknownProtocol {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon refused the request.
    #[error("daemon: {0}")]
    Refused(String),
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`], [`ClientError::NotOurs`].
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let nobody = |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NotOurs { path: path.to_owned() },
            _ => ClientError::NotRunning { path: path.to_owned(), source },
        };
        let stream = UnixStream::connect(path).map_err(nobody)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(nobody)?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Sends a request and waits for the answer; `progress` receives progress messages.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn ask(&mut self, request: &Request, progress: &mut dyn FnMut(&Value)) -> Result<Value, ClientError> {
        match self.send(request.line().as_bytes()) {
            // A daemon that refuses the connection sends an error before it closes it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            sent => sent.map_err(self.broken())?,
        }
        loop {
            let mut line = String::new();
            match self.stream.read_line(&mut line).map_err(self.broken())? {
                0 => return Err(self.broken()(io::ErrorKind::UnexpectedEof.into())),
                _ => match Answer::parse(&line) {
                    Some(Answer::Progress(value)) => progress(&value),
                    Some(Answer::Result(value)) => return Ok(value),
                    Some(Answer::Error(why)) => return Err(ClientError::Refused(why)),
                    None => return Err(ClientError::UnknownProtocol { path: self.path.clone() }),
                },
            }
        }
    }

    fn broken(&self) -> impl Fn(io::Error) -> ClientError + use<> {
        let path = self.path.clone();
        move |source| ClientError::Broken { path: path.clone(), source }
    }

    /// Sends with `MSG_NOSIGNAL`: a closed connection gives an error instead of `SIGPIPE`.
    fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::net::send(self.stream.get_ref(), bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The running daemon that serves a repository.
pub fn find(repository: &Path) -> Option<(Client, Note)> {
    let note = note::find(repository)?;
    Some((Client::connect(&note.socket).ok()?, note))
}
