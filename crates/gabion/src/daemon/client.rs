//! Speaks to a daemon.

use super::note::{self, Note};
use super::protocol::{Answer, Request};
use rustix::net::SendFlags;
use serde_json::Value;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for an answer. Work that takes longer is told of every second.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("no daemon answers at {}: {source}. Start one with `gabion daemon run CONFIG`, or name its socket with --socket", path.display())]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is another user's.
    #[error("the daemon at {} is another user's: only who runs it, and root, can speak to it", path.display())]
    NotOurs {
        /// The socket.
        path: PathBuf,
    },
    /// It went away, or does not answer.
    #[error("the daemon at {}: {source}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It says something that is no answer.
    #[error("the daemon at {} speaks another language: is it of this version?", path.display())]
    Strange {
        /// The socket.
        path: PathBuf,
    },
    /// It does not do that.
    #[error("the daemon says: {0}")]
    Refused(String),
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// [`ClientError::Nobody`], [`ClientError::NotOurs`].
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let nobody = |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NotOurs { path: path.to_owned() },
            _ => ClientError::Nobody { path: path.to_owned(), source },
        };
        let stream = UnixStream::connect(path).map_err(nobody)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(nobody)?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Asks, and waits for the answer; told how far it is meanwhile.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn ask(&mut self, request: &Request, progress: &mut dyn FnMut(&Value)) -> Result<Value, ClientError> {
        match self.send(request.line().as_bytes()) {
            // A daemon that serves nobody else says why before it closes the connection.
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
                    None => return Err(ClientError::Strange { path: self.path.clone() }),
                },
            }
        }
    }

    fn broken(&self) -> impl Fn(io::Error) -> ClientError + use<> {
        let path = self.path.clone();
        move |source| ClientError::Broken { path: path.clone(), source }
    }

    /// A daemon that hangs up must give an error, not a signal.
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

/// The daemon that sees to a repository, if one does and lives.
pub fn find(repository: &Path) -> Option<(Client, Note)> {
    let note = note::find(repository)?;
    Some((Client::connect(&note.socket).ok()?, note))
}
