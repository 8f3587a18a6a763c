//! TCP ports for servers that tests start.

use std::fs::File;
use std::net::TcpListener;
use std::sync::Mutex;

/// Below the range from which the kernel takes ports for outgoing connections (32768 and above on Linux): a connection that another
/// test opens cannot take the port of a server that is down for a moment.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// Locks of the ports that this process was given; they go with the process.
static GIVEN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A TCP port on loopback that no other test uses, also while its server is restarted.
///
/// A port that was free a moment ago (`bind` to port 0, then close) may be given to another process before the server takes it. Here a
/// locked file per port decides among all tests of this machine.
///
/// # Panics
/// All ports are in use.
pub fn port() -> u16 {
    let directory = std::env::temp_dir();
    let first = std::process::id() as usize * 16;
    let count = PORTS.len();
    for port in (0..count).map(|at| PORTS.start + ((first + at) % count) as u16) {
        // Files of another user cannot be opened; then the port is his.
        let Ok(file) = File::create(directory.join(format!("gabion-test-port-{port}"))) else { continue };
        if file.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            GIVEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(file);
            return port;
        }
    }
    panic!("no TCP port from {} to {} is free", PORTS.start, PORTS.end);
}

#[cfg(test)]
mod tests {
    use super::port;

    /// Ports that were asked for at the same time differ, although nothing listens on them yet.
    #[test]
    fn ports_are_given_once() {
        let ports = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(port)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect::<std::collections::BTreeSet<_>>()
        });
        assert_eq!(ports.len(), 8);
    }
}
