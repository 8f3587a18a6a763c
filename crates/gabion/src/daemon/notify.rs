//! Tells the one that started us how we are: the protocol of `sd_notify`, which is a datagram with lines of text.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where to tell, and how often to say that we are alive. All of it comes from the environment.
#[derive(Debug, Clone, Default)]
pub struct Supervisor {
    /// `NOTIFY_SOCKET`: a path, or a name that begins with `@`.
    pub socket: Option<PathBuf>,
    /// `WATCHDOG_USEC`: microseconds, within which we have to say something.
    pub watchdog: Option<u64>,
    /// `WATCHDOG_PID`: the process that is meant by it.
    pub watched: Option<u32>,
}

/// Whom we tell.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    alive: Option<Duration>,
}

impl Notifier {
    /// Nothing is told where nobody wants to hear.
    ///
    /// # Errors
    /// The address is none, or there is no socket to be had.
    pub fn new(supervisor: &Supervisor) -> io::Result<Notifier> {
        let named = supervisor.socket.as_deref().filter(|path| !path.as_os_str().is_empty());
        let socket = match named {
            Some(path) => Some((UnixDatagram::unbound()?, address(path)?)),
            None => None,
        };
        let ours = supervisor.watched.is_none_or(|process| process == std::process::id());
        // Twice as often as wanted, so that one that comes late is no death.
        let alive = supervisor.watchdog.filter(|&time| time > 0 && ours);
        let alive = alive.map(|time| Duration::from_micros(time / 2)).filter(|_| socket.is_some());
        Ok(Notifier { socket, alive })
    }

    /// How often to call [`is_alive`](Notifier::is_alive).
    pub fn beat(&self) -> Option<Duration> {
        self.alive
    }

    /// All that could be begun has begun.
    pub fn is_ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}\n", one_line(status)));
    }

    /// How it is now, for people.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}\n", one_line(status)));
    }

    /// We end.
    pub fn is_stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping\n");
    }

    /// We live.
    pub fn is_alive(&self) {
        self.send("WATCHDOG=1\n");
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // Who does not listen to us cannot be told that either.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

fn address(path: &Path) -> io::Result<SocketAddr> {
    match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(path),
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::{Notifier, Supervisor, address};
    use std::os::unix::net::UnixDatagram;
    use std::path::PathBuf;
    use std::time::Duration;

    fn heard(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(gabion_testkit::PATIENCE)).unwrap();
        let mut buffer = [0; 512];
        let got = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..got].to_vec()).unwrap()
    }

    #[test]
    fn what_is_told_arrives_at_paths_and_names() {
        let dir = tempfile::tempdir().unwrap();
        let name = format!("@gabion-test-{}", std::process::id());
        for place in [dir.path().join("notify"), PathBuf::from(name)] {
            let listener = UnixDatagram::bind_addr(&address(&place).unwrap()).unwrap();
            let supervisor = Supervisor {
                socket: Some(place),
                watchdog: Some(3_000_000),
                watched: Some(std::process::id()),
            };
            let notifier = Notifier::new(&supervisor).unwrap();
            assert_eq!(notifier.beat(), Some(Duration::from_millis(1500)));
            notifier.is_ready("1 of 2\nsources");
            assert_eq!(heard(&listener), "READY=1\nSTATUS=1 of 2 sources\n");
            notifier.is_alive();
            assert_eq!(heard(&listener), "WATCHDOG=1\n");
            notifier.is_stopping();
            assert!(heard(&listener).starts_with("STOPPING=1\n"));
        }
    }

    #[test]
    fn nobody_is_told_where_nobody_listens() {
        let silent = Notifier::new(&Supervisor { watchdog: Some(1000), ..Supervisor::default() }).unwrap();
        assert_eq!(silent.beat(), None);
        silent.status("nothing");
        let other = Supervisor { socket: Some("/nowhere".into()), watchdog: Some(1000), watched: Some(1) };
        let other = Notifier::new(&other).unwrap();
        assert_eq!(other.beat(), None, "another process is meant");
        other.is_ready("gone");
    }
}
