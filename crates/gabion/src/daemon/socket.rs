//! The daemon's socket: accepts connections and serves requests. Malformed input is answered with an error and never
//! ends the daemon.

use super::Daemon;
use super::job::{Ended, Job, Work};
use super::protocol::{Answer, BadRequest, MAX_REQUEST, Request};
use crate::report::daemon::DaemonAnswer;
use gabion_platform::lock::Lockable;
use gabion_vault::scrub::Selection;
use gabion_vault::world::SECOND;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Most connections at once; further ones get an error and are closed.
const MAX_CONNECTIONS: usize = 32;

/// Time without a request after which a connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Timeout for a client to read an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which the end of the daemon is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Interval of progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Error of the socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon listens on it.
    #[error("another daemon already listens at {}: {holder}", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
        /// Process and host of that daemon.
        holder: String,
    },
    /// A system call failed.
    #[error("the socket {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The listening socket with its lock file: one daemon at a time.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    listener: UnixListener,
    // Held, not read.
    _lock: Lockable,
}

impl Place {
    /// Binds the socket with mode 0600.
    pub(super) fn take(path: &Path) -> Result<Place, SocketError> {
        let failed = |source| SocketError::Io { path: path.to_owned(), source };
        if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        }
        let lock = take_lock(path, &failed)?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        // By umask, so that no other user can connect before the mode is set.
        let usual = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(usual);
        let listener = bound.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Place { path: path.to_owned(), listener, _lock: lock })
    }

    /// The next connection, if one arrives within the poll interval.
    fn accept(&self) -> Option<UnixStream> {
        let mut ready = [PollFd::new(&self.listener, PollFlags::IN)];
        let time = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
        // Errors of `poll` also show in `accept`.
        let _ = poll(&mut ready, Some(&time));
        match self.listener.accept() {
            Ok((stream, _)) => Some(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // For example too many open files: pause, so that the loop does not spin.
            Err(_) => {
                std::thread::sleep(POLL_INTERVAL);
                None
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn take_lock(path: &Path, failed: &dyn Fn(io::Error) -> SocketError) -> Result<Lockable, SocketError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(&name)
        .map_err(failed)?;
    // The file is overwritten: it must belong to this user and have no other name.
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.nlink() != 1 {
        let why = format!("{} is no lock file of this user", Path::new(&name).display());
        return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, why)));
    }
    let file = Lockable::from(file);
    if file.try_lock().is_err() {
        let mut holder = [0; 256];
        let got = file.read_at(&mut holder, 0).map_err(failed)?;
        let holder = String::from_utf8_lossy(&holder[..got]).trim_end().to_owned();
        return Err(SocketError::Taken { path: path.to_owned(), holder });
    }
    let text = format!("process {} on {}\n", gabion_vault::world::process(), gabion_vault::world::host());
    file.set_len(0).and_then(|()| file.write_all_at(text.as_bytes(), 0)).map_err(failed)?;
    Ok(file)
}

/// Accepts connections until the daemon ends.
pub(super) fn listen(place: &Place, daemon: &Arc<Daemon>) {
    let open = Arc::new(AtomicUsize::new(0));
    while !daemon.is_over() {
        let Some(mut stream) = place.accept() else { continue };
        // Without the timeout, a client that is gone is noticed later.
        let _ = stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(WRITE_TIMEOUT)));
        let admitted = match refusal(&stream) {
            Some(why) => Err(why),
            None => Connection::admit(&open).ok_or_else(|| "too many connections".to_owned()),
        };
        let connection = match admitted {
            Ok(connection) => connection,
            Err(why) => {
                let _ = stream.write_all(Answer::<DaemonAnswer>::Error(why).line().as_bytes());
                continue;
            }
        };
        let daemon = Arc::clone(daemon);
        let serve = move || {
            let _connection = connection;
            // An error means that the client closed the connection.
            let _ = serve(stream, &daemon);
        };
        // If the thread cannot be started, the connection is closed and no longer counted.
        let _ = std::thread::Builder::new().name("connection".to_owned()).spawn(serve);
    }
}

/// Counts a connection until it is dropped, also if its thread panics.
struct Connection(Arc<AtomicUsize>);

impl Connection {
    /// Counts one more, unless there are [`MAX_CONNECTIONS`].
    fn admit(open: &Arc<AtomicUsize>) -> Option<Connection> {
        let connection = Connection(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < MAX_CONNECTIONS).then_some(connection)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Refuses clients of users other than the daemon's own and root. The mode of the socket does so too, but it can be
/// changed, and not every system checks it.
fn refusal(stream: &UnixStream) -> Option<String> {
    let ours = rustix::process::geteuid();
    match rustix::net::sockopt::socket_peercred(stream) {
        Ok(peer) if peer.uid == ours || peer.uid.is_root() => None,
        Ok(peer) => Some(format!(
            "user {} may not use this daemon, only user {} who runs it and root",
            peer.uid.as_raw(),
            ours.as_raw()
        )),
        Err(error) => Some(format!("the user of this connection is not known: {error}")),
    }
}

/// Reads lines from a connection, up to the length of a request.
struct Lines {
    stream: UnixStream,
    buffer: Vec<u8>,
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

impl Lines {
    fn next(&mut self, is_over: &dyn Fn() -> bool) -> io::Result<Line> {
        let mut silent = Duration::ZERO;
        self.stream.set_read_timeout(Some(POLL_INTERVAL))?;
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Ok(Line::Whole(std::mem::replace(&mut self.buffer, rest)));
            }
            if self.buffer.len() > MAX_REQUEST {
                return Ok(Line::TooLong);
            }
            if is_over() || silent >= IDLE_TIMEOUT {
                return Ok(Line::End);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(Line::End),
                Ok(got) => {
                    silent = Duration::ZERO;
                    self.buffer.extend_from_slice(&bytes[..got]);
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    silent += POLL_INTERVAL;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn serve(stream: UnixStream, daemon: &Arc<Daemon>) -> io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = Lines { stream, buffer: Vec::new() };
    let mut tell = |answer: &Answer<DaemonAnswer>| out.write_all(answer.line().as_bytes());
    loop {
        let line = match lines.next(&|| daemon.is_over())? {
            Line::End => return Ok(()),
            // The start of the next line is unknown.
            Line::TooLong => return tell(&Answer::Error(BadRequest::TooLong.to_string())),
            Line::Whole(line) => line,
        };
        let answer = match Request::parse(&line) {
            Err(error) => Answer::Error(error.to_string()),
            Ok(request) => match carry_out(daemon, request, &mut tell)? {
                Ok(value) => Answer::Result(value),
                Err(why) => Answer::Error(why),
            },
        };
        tell(&answer)?;
    }
}

/// Carries out a request. The outer error is that of the connection.
fn carry_out(
    daemon: &Arc<Daemon>,
    request: Request,
    tell: &mut dyn FnMut(&Answer<DaemonAnswer>) -> io::Result<()>,
) -> io::Result<Result<DaemonAnswer, String>> {
    let (source, work, wait) = match request {
        Request::Status { source } => return Ok(daemon.status(source.as_deref())),
        Request::Pause { source } => return Ok(daemon.pause(source.as_deref(), true)),
        Request::Resume { source } => return Ok(daemon.pause(source.as_deref(), false)),
        Request::Approve { source, digest } => {
            let approved = daemon.source(&source).and_then(|source| source.approve(&digest));
            return Ok(approved.map(|()| DaemonAnswer::Approved { approved: digest }));
        }
        Request::Reload {} => return Ok(daemon.reload()),
        Request::Stop {} => {
            daemon.stop();
            return Ok(Ok(DaemonAnswer::Stopping {
                stopping: true,
                process: gabion_vault::world::process(),
            }));
        }
        Request::Scrub { source, percent, older_than, due, restart, repair, wait } => {
            let selection = match (percent, older_than) {
                (Some(_), Some(_)) => return Ok(Err("either percent or older_than".to_owned())),
                (None, None) if due => Selection::Due,
                _ if due => return Ok(Err("either due or percent or older_than".to_owned())),
                (Some(share), None) if (1..=100).contains(&share) => Selection::Percent(share),
                (Some(share), None) => return Ok(Err(format!("{share} is no share: from 1 to 100"))),
                (None, Some(age)) => {
                    let age = i64::try_from(age).unwrap_or(i64::MAX);
                    Selection::OlderThan(age.saturating_mul(SECOND))
                }
                (None, None) => Selection::All,
            };
            (source, Work::Scrub { selection, restart, repair, rhythm: None }, wait)
        }
        Request::Repair { source, known, keep_changed, missing, wait } => {
            (source, Work::Repair { known_only: known, keep_changed, missing }, wait)
        }
        Request::Protect { source, wait } => (source, Work::Protect, wait),
        Request::Rebuild { source, targets, agree, wait } => {
            (source, Work::Rebuild { targets, agreed: agree }, wait)
        }
    };
    let job = match daemon.source(&source).and_then(|found| {
        if let Work::Rebuild { agreed: Some(agreement), .. } = &work {
            // Confirmed: no delay and no second question.
            let _ = found.agree(agreement);
        }
        found.enqueue(work)
    }) {
        Ok(job) => job,
        Err(why) => return Ok(Err(why)),
    };
    if !wait {
        return Ok(Ok(DaemonAnswer::Queued { queued: job.work.word(), source }));
    }
    wait_for(&job, tell).map(|ended| {
        ended.map(|Ended { outcome, report, .. }| DaemonAnswer::Ended { outcome, report: Box::new(report) })
    })
}

/// Sends progress until the job has ended. A client that disconnects does not stop the job.
fn wait_for(
    job: &Job,
    tell: &mut dyn FnMut(&Answer<DaemonAnswer>) -> io::Result<()>,
) -> io::Result<Result<Ended, String>> {
    loop {
        if let Some(ended) = job.wait(PROGRESS_INTERVAL) {
            return Ok(ended);
        }
        tell(&Answer::Progress(DaemonAnswer::Progress(job.progress())))?;
    }
}

#[cfg(test)]
mod tests {
    use super::{Connection, MAX_CONNECTIONS};
    use std::sync::Arc;

    /// Regression: panicked threads stayed counted, and after 32 of them the daemon refused all connections.
    #[test]
    fn connections_of_panicked_threads_are_not_counted() {
        let open = Arc::default();
        for _ in 0..2 * MAX_CONNECTIONS {
            let connection = Connection::admit(&open).expect("there is room");
            let serving = std::thread::spawn(move || {
                let _connection = connection;
                panic!("as a serving thread may");
            });
            assert!(serving.join().is_err());
        }
        let all: Vec<_> = (0..MAX_CONNECTIONS).map(|_| Connection::admit(&open).expect("room")).collect();
        assert!(Connection::admit(&open).is_none(), "one too many");
        drop(all);
        assert!(Connection::admit(&open).is_some());
    }
}
