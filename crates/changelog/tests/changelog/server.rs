//! A Redis server for one test, on loopback, that keeps its file in a directory of its own.

use gabion_changelog::Server;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) struct TestServer {
    child: Child,
    port: u16,
    settings: Vec<String>,
    directory: TempDir,
}

impl TestServer {
    /// With an append-only file that is synced before each answer.
    pub(crate) fn start() -> TestServer {
        TestServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    pub(crate) fn start_with(settings: &[&str]) -> TestServer {
        let directory = tempfile::tempdir().expect("a directory");
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let port = gabion_testkit::port();
        let mut child = spawn(port, directory.path().to_owned(), &settings);
        assert!(is_up(port, &mut child), "redis-server does not come up");
        TestServer { child, port, settings, directory }
    }

    pub(crate) fn server(&self, name: &str) -> Server {
        let url = format!("redis://127.0.0.1:{}/", self.port);
        Server { url, name: name.to_owned(), allow_forgetful: false }
    }

    /// Changes a setting of the running server.
    #[allow(dead_code, reason = "not all tests that share this file do")]
    pub(crate) fn set(&self, setting: &str, value: &str) {
        self.tell(&format!("CONFIG SET {setting} {value}"));
    }

    /// Nobody gets an answer for a while.
    #[allow(dead_code, reason = "not all tests that share this file do")]
    pub(crate) fn pause(&self, time: Duration) {
        self.tell(&format!("CLIENT PAUSE {}", time.as_millis()));
    }

    fn tell(&self, command: &str) {
        use std::io::{Read, Write};
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        write!(stream, "{command}\r\n").expect("asked");
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"+OK\r\n");
    }

    /// As `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }

    /// Loses its files, as a disk does.
    #[allow(dead_code, reason = "not all tests that share this file do")]
    pub(crate) fn forget(&mut self) {
        self.kill();
        for entry in std::fs::read_dir(self.directory.path()).expect("its directory") {
            let path = entry.expect("an entry").path();
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
            removed.expect("removed");
        }
    }

    /// Its files as they are now.
    #[allow(dead_code, reason = "not all tests that share this file do")]
    pub(crate) fn state(&mut self) -> TempDir {
        self.kill();
        let copy = tempfile::tempdir().expect("a directory");
        let copied =
            Command::new("cp").arg("-a").arg(self.directory.path().join(".")).arg(copy.path()).status();
        assert!(copied.expect("cp").success());
        self.restart();
        copy
    }

    /// The server with files of an earlier time, as a replica that took over has them.
    #[allow(dead_code, reason = "not all tests that share this file do")]
    pub(crate) fn restore(&mut self, state: &TempDir) {
        self.forget();
        let copied =
            Command::new("cp").arg("-a").arg(state.path().join(".")).arg(self.directory.path()).status();
        assert!(copied.expect("cp").success());
        self.restart();
    }

    /// The same server again, from its files.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.port, self.directory.path().to_owned(), &self.settings);
        assert!(is_up(self.port, &mut self.child), "redis-server does not come up again");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // It may have been killed by the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(port: u16, directory: PathBuf, settings: &[String]) -> Child {
    Command::new("redis-server")
        .args([
            "--bind",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--save",
            "",
            "--daemonize",
            "no",
            "--dir",
        ])
        .arg(directory)
        .args(settings)
        .stdout(Stdio::null())
        .spawn()
        .expect("these tests need the program redis-server (Debian: apt install redis-server)")
}

/// Waits until the server answers; false if it ended instead, as it does if another process has its port.
fn is_up(port: u16, child: &mut Child) -> bool {
    gabion_testkit::until_some("redis-server answers or ends", || {
        if child.try_wait().expect("a child").is_some() {
            return Some(false);
        }
        TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(true)
    })
}
