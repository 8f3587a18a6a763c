//! TCP ports for servers started by tests.

use std::fs::File;
use std::net::TcpListener;
use std::sync::Mutex;

/// Below the range of ephemeral ports (32768 and above on Linux): an outgoing connection of another test cannot take
/// the port of a server that restarts.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// Lock files of the ports of this process, released when it exits.
static GIVEN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A TCP port on loopback that no other test uses, even while its server restarts.
///
/// A port found by `bind` to port 0 and close may be taken by another process before the server binds it. A locked file
/// per port reserves it among all tests of this machine.
///
/// # Panics
/// All ports are in use.
pub fn port() -> u16 {
    let directory = std::env::temp_dir();
    let first = std::process::id() as usize * 16;
    let count = PORTS.len();
    for port in (0..count).map(|at| PORTS.start + ((first + at) % count) as u16) {
        // A file of another user cannot be opened; that user owns the port.
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

    /// Ports requested concurrently differ, although nothing listens on them yet.
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
