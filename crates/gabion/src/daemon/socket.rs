//! The socket: requests come in, answers go out. Whatever bytes come, the daemon goes on.

use super::Daemon;
use super::job::{Ended, Job, Work};
use super::protocol::{Answer, MAX_REQUEST, NoRequest, Request};
use gabion_platform::lock::Lockable;
use gabion_vault::scrub::Selection;
use gabion_vault::world::SECOND;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Most connections at once; further ones are told so and closed.
const MAX_CONNECTIONS: usize = 32;

/// How long a connection may be silent before it is closed.
const SILENCE: Duration = Duration::from_secs(120);

/// How long a client may take to read an answer.
const SLOW: Duration = Duration::from_secs(10);

/// How often to look whether the daemon ends.
const LOOK: Duration = Duration::from_millis(200);

/// How often those who wait are told how far it is.
const BEAT: Duration = Duration::from_secs(1);

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon is at work there.
    #[error("a daemon is at work at {} already: {holder}", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
        /// Which.
        holder: String,
    },
    /// The operating system refuses.
    #[error("the socket {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
}

/// The place where a daemon listens; nobody else may while this lives.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    listener: UnixListener,
    // Held, not read.
    _lock: Lockable,
}

impl Place {
    /// Takes a place. Only its owner may connect.
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
        // Nobody may connect in the moment before the mode is set.
        let usual = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(usual);
        let listener = bound.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Place { path: path.to_owned(), listener, _lock: lock })
    }

    /// The next connection, if one comes soon.
    fn accept(&self) -> Option<UnixStream> {
        let mut ready = [PollFd::new(&self.listener, PollFlags::IN)];
        let time = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        // Whatever it says, accepting says it better.
        let _ = poll(&mut ready, Some(&time));
        match self.listener.accept() {
            Ok((stream, _)) => Some(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // Too many open files, say: it gets better or not, but must not become a storm.
            Err(_) => {
                std::thread::sleep(LOOK);
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
    // What is in the file is replaced: it must be no one else's, and nothing else by another name.
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

/// Listens until the daemon ends.
pub(super) fn listen(place: &Place, daemon: &Arc<Daemon>) {
    let open = Arc::new(AtomicUsize::new(0));
    while !daemon.is_over() {
        let Some(mut stream) = place.accept() else { continue };
        // What cannot be set makes it slower to notice that someone is gone, nothing else.
        let _ = stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(SLOW)));
        let admitted = match refusal(&stream) {
            Some(why) => Err(why),
            None => Connection::admit(&open).ok_or_else(|| "too many connections".to_owned()),
        };
        let connection = match admitted {
            Ok(connection) => connection,
            Err(why) => {
                let _ = stream.write_all(Answer::Error(why).line().as_bytes());
                continue;
            }
        };
        let daemon = Arc::clone(daemon);
        let serve = move || {
            let _connection = connection;
            // Who hangs up has heard enough.
            let _ = serve(stream, &daemon);
        };
        // Without a thread the connection is closed, and counted no longer.
        let _ = std::thread::Builder::new().name("connection".to_owned()).spawn(serve);
    }
}

/// A connection that is counted until this is dropped, also when the thread that serves it panics.
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

/// Why a client may not use this daemon: it is neither of the user who runs it nor of root. Permissions of the socket keep others out as
/// well, but they can be changed, and not every system heeds them.
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

/// Lines of a connection, none longer than a request may be.
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
        self.stream.set_read_timeout(Some(LOOK))?;
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Ok(Line::Whole(std::mem::replace(&mut self.buffer, rest)));
            }
            if self.buffer.len() > MAX_REQUEST {
                return Ok(Line::TooLong);
            }
            if is_over() || silent >= SILENCE {
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
                    silent += LOOK;
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
    let mut tell = |answer: &Answer| out.write_all(answer.line().as_bytes());
    loop {
        let line = match lines.next(&|| daemon.is_over())? {
            Line::End => return Ok(()),
            // What follows cannot be understood any more.
            Line::TooLong => return tell(&Answer::Error(NoRequest::TooLong.to_string())),
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

/// Does what is asked for. The outer error is that nobody listens any more.
fn carry_out(
    daemon: &Arc<Daemon>,
    request: Request,
    tell: &mut dyn FnMut(&Answer) -> io::Result<()>,
) -> io::Result<Result<Value, String>> {
    let (source, work, wait) = match request {
        Request::Status { source } => return Ok(daemon.status(source.as_deref())),
        Request::Pause { source } => return Ok(daemon.pause(source.as_deref(), true)),
        Request::Resume { source } => return Ok(daemon.pause(source.as_deref(), false)),
        Request::Approve { source, digest } => {
            let approved = daemon.source(&source).and_then(|source| source.approve(&digest));
            return Ok(approved.map(|()| json!({ "approved": digest })));
        }
        Request::Reload {} => return Ok(daemon.reload()),
        Request::Stop {} => {
            daemon.stop();
            return Ok(Ok(json!({ "stopping": true, "process": gabion_vault::world::process() })));
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
            // Who agrees need not wait for the delay, and is not asked again.
            let _ = found.agree(agreement);
        }
        found.want(work)
    }) {
        Ok(job) => job,
        Err(why) => return Ok(Err(why)),
    };
    if !wait {
        return Ok(Ok(json!({ "queued": job.work.word(), "source": source })));
    }
    wait_for(&job, tell).map(|ended| {
        ended.map(|Ended { outcome, mut report, .. }| {
            report["outcome"] = json!(outcome);
            report
        })
    })
}

/// Tells how far it is until it is done. Who hangs up does not stop it.
fn wait_for(job: &Job, tell: &mut dyn FnMut(&Answer) -> io::Result<()>) -> io::Result<Result<Ended, String>> {
    loop {
        if let Some(ended) = job.wait(BEAT) {
            return Ok(ended);
        }
        tell(&Answer::Progress(job.course()))?;
    }
}

#[cfg(test)]
mod tests {
    use super::{Connection, MAX_CONNECTIONS};
    use std::sync::Arc;

    /// Threads that panicked were counted for ever: after 32 of them the daemon refused everybody.
    #[test]
    fn connections_whose_threads_panic_are_counted_no_longer() {
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
