//! Notifications to the service manager by the `sd_notify` protocol: datagrams with lines of text.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Notification settings, from the environment.
#[derive(Debug, Clone, Default)]
pub struct Supervisor {
    /// `NOTIFY_SOCKET`: a path, or a name that begins with `@`.
    pub socket: Option<PathBuf>,
    /// `WATCHDOG_USEC`: longest interval between keep-alive messages, in microseconds.
    pub watchdog: Option<u64>,
    /// `WATCHDOG_PID`: the process that the watchdog applies to.
    pub watched: Option<u32>,
}

/// Sender of notifications.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    alive: Option<Duration>,
}

impl Notifier {
    /// Without a socket, all notifications are dropped.
    ///
    /// # Errors
    /// The address is invalid, or no socket can be created.
    pub fn new(supervisor: &Supervisor) -> io::Result<Notifier> {
        let named = supervisor.socket.as_deref().filter(|path| !path.as_os_str().is_empty());
        let socket = match named {
            Some(path) => Some((UnixDatagram::unbound()?, address(path)?)),
            None => None,
        };
        let ours = supervisor.watched.is_none_or(|process| process == std::process::id());
        // Twice as often as required, so that one late message does not end the service.
        let alive = supervisor.watchdog.filter(|&time| time > 0 && ours);
        let alive = alive.map(|time| Duration::from_micros(time / 2)).filter(|_| socket.is_some());
        Ok(Notifier { socket, alive })
    }

    /// Interval at which to call [`is_alive`](Notifier::is_alive).
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.alive
    }

    /// Reports that startup is complete.
    pub fn is_ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}\n", one_line(status)));
    }

    /// Reports a status line.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}\n", one_line(status)));
    }

    /// Reports that the daemon stops.
    pub fn is_stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping\n");
    }

    /// Feeds the watchdog.
    pub fn is_alive(&self) {
        self.send("WATCHDOG=1\n");
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // There is no other channel to report a failure on.
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
    fn notifications_arrive_at_paths_and_abstract_names() {
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
            assert_eq!(notifier.watchdog_interval(), Some(Duration::from_millis(1500)));
            notifier.is_ready("1 of 2\nsources");
            assert_eq!(heard(&listener), "READY=1\nSTATUS=1 of 2 sources\n");
            notifier.is_alive();
            assert_eq!(heard(&listener), "WATCHDOG=1\n");
            notifier.is_stopping();
            assert!(heard(&listener).starts_with("STOPPING=1\n"));
        }
    }

    #[test]
    fn without_a_socket_nothing_is_sent() {
        let silent = Notifier::new(&Supervisor { watchdog: Some(1000), ..Supervisor::default() }).unwrap();
        assert_eq!(silent.watchdog_interval(), None);
        silent.status("nothing");
        let other = Supervisor { socket: Some("/nowhere".into()), watchdog: Some(1000), watched: Some(1) };
        let other = Notifier::new(&other).unwrap();
        assert_eq!(other.watchdog_interval(), None, "another process is meant");
        other.is_ready("gone");
    }
}
