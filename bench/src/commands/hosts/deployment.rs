//! A deployment on hosts in namespaces.

use anyhow::{Context, Result, ensure};
use gabion_testkit::Hosts;
use gabion_vault::changelog::{Change, When, remember_password};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{Clock, Stopwatch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

/// Of the server, which is on host 0.
const PORT: u16 = 6379;
pub(super) const PASSWORD: &str = "measured";

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A Redis server that loses nothing: every change is on the disk before it is acknowledged.
pub(super) struct RedisServer(Child);

impl RedisServer {
    /// Starts a server.
    pub(super) fn start(mut command: Command, address: SocketAddr, directory: &Path) -> Result<RedisServer> {
        std::fs::create_dir_all(directory)?;
        command.args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()]);
        command.args(["--save", "", "--requirepass", PASSWORD]);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]).arg(directory);
        let child = command.stdout(Stdio::null()).spawn();
        Ok(RedisServer(child.context("redis-server cannot be run (package redis-server)")?))
    }

    /// Waits until a server answers.
    pub(super) fn wait_for(address: SocketAddr) -> Result<()> {
        let clock = Stopwatch::start();
        while TcpStream::connect(address).is_err() {
            ensure!(clock.elapsed() < PATIENCE, "redis-server does not answer on {address}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A URL of a server, with the password.
pub(super) fn url(address: SocketAddr) -> String {
    format!("redis://:{PASSWORD}@{address}/")
}

/// Hosts with one server. Host 0 has the server, the others are for workers.
pub(super) struct Deployment {
    _server: RedisServer,
    pub(super) hosts: Hosts,
    place: tempfile::TempDir,
}

impl Deployment {
    pub(super) fn new(workers: usize, place: tempfile::TempDir) -> Result<Deployment> {
        let hosts = Hosts::new(workers + 1).context("hosts are network namespaces, which need root")?;
        let command = hosts.command(0, "redis-server");
        let address = Deployment::address();
        let _server = RedisServer::start(command, address, &place.path().join("redis"))?;
        hosts.within(0, || RedisServer::wait_for(address))??;
        Ok(Deployment { _server, hosts, place })
    }

    fn address() -> SocketAddr {
        SocketAddr::new(Hosts::address(0).into(), PORT)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn cache(&self, host: usize) -> PathBuf {
        self.path(&format!("cache{host}"))
    }

    /// The program on a host.
    pub(super) fn gabion(&self, host: usize, args: &[&str]) -> Result<Command> {
        let mut command = self.hosts.command(host, crate::program::gabion()?.get_program());
        command.args(args).env("GABION_REDIS_PASSWORD", PASSWORD).env("GABION_CACHE", self.cache(host));
        command.env_remove("GABION_REPOSITORY").stdin(Stdio::null());
        Ok(command)
    }

    /// Runs the program on host 0 with a tree.
    pub(super) fn expect(&self, command: &str, tree: &Path, more: &[&str]) -> Result<Output> {
        let output = self.gabion(0, &[command])?.arg(tree).args(more).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "gabion {command} ended with {}: {said}", output.status);
        Ok(output)
    }

    /// An empty tree with a vault of this deployment.
    pub(super) fn tree(&self, name: &str) -> Result<PathBuf> {
        let tree = self.path(name);
        std::fs::create_dir(&tree)?;
        self.expect("protect", &tree, &["--changelog", &format!("redis://{}/", Deployment::address())])?;
        Ok(tree)
    }

    /// Does `work` with the vault of a tree, opened on host 0.
    pub(super) fn with_vault<T: Send>(
        &self,
        tree: &Path,
        work: impl FnOnce(&Vault) -> Result<T> + Send,
    ) -> Result<T> {
        self.hosts.within(0, || {
            remember_password(&url(Deployment::address()));
            let mut location = Location::find(tree, None)?;
            location.cache = Some(self.cache(0));
            work(&Vault::open(&location, Clock::System)?)
        })?
    }

    /// A resident worker that waits for work.
    pub(super) fn worker(&self, host: usize, tree: &Path, limit: &str) -> Result<Follower> {
        let args = ["work", "--follow", "--json", "--threads", "1", "--limit", limit];
        Follower::start(self.gabion(host, &args)?.arg(tree))
    }
}

/// Records all files of a tree as changed and due.
pub(super) fn record_all(vault: &Vault, files: &[String]) -> Result<()> {
    let when = When::now(vault.clock.now(), 0);
    let changes: Vec<Change> = files.iter().map(|file| Change::modify_whole(file.clone(), when)).collect();
    vault.changelog.record(&changes)?;
    Ok(())
}

/// A running `gabion work --follow --json`.
pub(super) struct Follower {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Follower {
    /// Starts it, and waits until the changelog knows it.
    fn start(command: &mut Command) -> Result<Follower> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("a worker has no output")?;
        let mut follower = Follower { child, output: BufReader::new(output) };
        let mut line = String::new();
        follower.output.read_line(&mut line)?;
        ensure!(line.contains(r#""event":"started""#), "a worker does not start: {line}");
        Ok(follower)
    }

    /// The process itself, not the one that entered the namespace: they are the same after `exec`.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends it. Returns the sums of what it did.
    pub(super) fn stop(mut self) -> Result<Value> {
        let process = Pid::from_raw(self.child.id() as i32).context("a process without number")?;
        kill_process(process, Signal::TERM)?;
        let mut said = String::new();
        self.output.read_to_string(&mut said)?;
        ensure!(self.child.wait()?.success(), "a worker failed: {said}");
        let last: Value = serde_json::from_str(said.lines().last().context("a worker said nothing")?)?;
        ensure!(last["event"] == "stopped", "a worker did not stop: {last}");
        Ok(last)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
