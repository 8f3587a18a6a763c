//! Hosts for tests: network namespaces on a bridge in a namespace of its own, each with a host name of its own, and a
//! Redis server on the first one. They share one file system, as hosts with shared storage do.

use crate::worker::Follower;
use gabion_testkit::until;
use gabion_vault::changelog::{Change, When, remember_password};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::Clock;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const PASSWORD: &str = "correct-horse";

/// Networks of this process so far.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// Some hosts and a server. Host 0 has the server, the others are for workers.
pub(crate) struct Network {
    prefix: String,
    hosts: usize,
    server: Option<Child>,
    dir: tempfile::TempDir,
}

fn tool(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap_or_else(|error| {
        panic!("{program}: {error}. These tests need the packages iproute2, nftables and redis-server")
    });
    assert!(output.status.success(), "{program} {}: {output:?}", args.join(" "));
}

impl Network {
    /// None, with a visible skip, where no network namespaces can be made.
    pub(crate) fn new(test: &str, workers: usize) -> Option<Network> {
        let probe = Command::new("unshare").args(["--net", "--uts", "true"]).output();
        if !probe.as_ref().is_ok_and(|output| output.status.success()) {
            gabion_testkit::skip(test, format!("no network namespaces: {probe:?}"));
            return None;
        }
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("gabion-{}-{number}-", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let mut network = Network { prefix, hosts: workers + 1, server: None, dir };
        let switch = network.namespace("switch");
        tool("ip", &["netns", "add", &switch]);
        tool("ip", &["-n", &switch, "link", "add", "br0", "type", "bridge"]);
        tool("ip", &["-n", &switch, "link", "set", "br0", "up"]);
        for host in 0..network.hosts {
            let (space, port) = (network.namespace(&host.to_string()), format!("p{host}"));
            tool("ip", &["netns", "add", &space]);
            tool("ip", &["-n", &space, "link", "set", "lo", "up"]);
            let pair = ["type", "veth", "peer", "name", "eth0", "netns", &space];
            tool("ip", &[&["-n", &switch, "link", "add", &port][..], &pair].concat());
            tool("ip", &["-n", &switch, "link", "set", &port, "master", "br0", "up"]);
            tool("ip", &["-n", &space, "addr", "add", &format!("10.99.0.{}/24", host + 1), "dev", "eth0"]);
            tool("ip", &["-n", &space, "link", "set", "eth0", "up"]);
        }
        std::fs::create_dir(network.tree()).unwrap();
        std::fs::create_dir(network.dir.path().join("redis")).unwrap();
        network.start_server();
        network.expect(1, 0, &["protect", "tree", "--code", "2+1", "--changelog", "redis://10.99.0.1:6379/"]);
        Some(network)
    }

    fn namespace(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    /// The redundancy file of a file.
    pub(crate) fn redundancy(&self, name: &str) -> PathBuf {
        self.tree().join(".gabion/redundancy").join(name)
    }

    pub(crate) fn start_server(&mut self) {
        let mut command = self.on(0, "redis-server");
        command.args(["--bind", "10.99.0.1", "--port", "6379", "--save", "", "--requirepass", PASSWORD]);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--dir", "redis"]);
        self.server = Some(command.stdout(Stdio::null()).spawn().unwrap());
        until("redis-server answers", || {
            let mut client = self.on(0, "redis-cli");
            let answer =
                client.args(["-h", "10.99.0.1", "--no-auth-warning", "-a", PASSWORD, "ping"]).output();
            answer.is_ok_and(|answer| answer.stdout.starts_with(b"PONG"))
        });
    }

    pub(crate) fn kill_server(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Where a host keeps its copy of the catalogue.
    fn cache(&self, host: usize) -> PathBuf {
        self.dir.path().join(format!("cache{host}"))
    }

    /// Name of a host, as `uname` gives it there.
    pub(crate) fn name(host: usize) -> String {
        format!("host{host}")
    }

    /// A program on a host.
    fn on(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(&host.to_string()), "unshare", "--uts", "sh", "-c"]);
        command.args([
            r#"echo "$0" > /proc/sys/kernel/hostname && exec "$@""#,
            &Network::name(host),
            program,
        ]);
        command.current_dir(self.dir.path()).env("GABION_REDIS_PASSWORD", PASSWORD).stdin(Stdio::null());
        command.env_remove("GABION_REPOSITORY").env("GABION_CACHE", self.cache(host));
        command
    }

    /// The program on a host.
    pub(crate) fn gabion(&self, host: usize, args: &[&str]) -> Command {
        let mut command = self.on(host, env!("CARGO_BIN_EXE_gabion"));
        command.args(args);
        command
    }

    /// Runs the program on a host and expects an exit code.
    pub(crate) fn expect(&self, host: usize, code: i32, args: &[&str]) -> Output {
        let output = self.gabion(host, args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "gabion {}: {output:?}", args.join(" "));
        output
    }

    /// A resident worker with one thread and a rate limit.
    pub(crate) fn follower(&self, host: usize, limit: &str) -> Follower {
        let command =
            self.gabion(host, &["work", "tree", "--follow", "--json", "--threads", "1", "--limit", limit]);
        Follower::spawn(command, self.dir.path(), &Network::name(host))
    }

    /// A mount of the tree on a host, and its mount point as other processes reach it.
    pub(crate) fn mount(&self, host: usize, more: &[&str]) -> (Follower, PathBuf) {
        let at = format!("mnt{host}");
        std::fs::create_dir_all(self.dir.path().join(&at)).unwrap();
        let mut mount = self.monitor(host, "mount", &[&[&at, "--json"], more].concat());
        mount.wait_for("mounted");
        let at = mount.sees(&self.dir.path().canonicalize().unwrap().join(at));
        (mount, at)
    }

    /// A watch of the tree on a host.
    pub(crate) fn watch(&self, host: usize) -> Follower {
        let mut watch = self.monitor(host, "watch", &["--json"]);
        watch.wait_for("watch_started");
        watch
    }

    fn monitor(&self, host: usize, command: &str, args: &[&str]) -> Follower {
        let started = self.gabion(host, &[&[command, "tree"], args].concat());
        Follower::spawn(started, self.dir.path(), &format!("{command}{host}"))
    }

    /// Runs `work` with the vault, opened from the server's host.
    pub(crate) fn with_vault<T: Send>(&self, work: impl FnOnce(&Vault) -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{}", self.namespace("0"))).unwrap();
        std::thread::scope(|scope| {
            let run = || {
                // Threads that the vault starts are in the namespace of this one.
                move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                remember_password(&format!("redis://:{PASSWORD}@10.99.0.1:6379/"));
                let mut location = Location::find(&self.tree(), None).unwrap();
                location.cache = Some(self.cache(0));
                let vault = Vault::open(&location, Clock::System).unwrap();
                work(&vault)
            };
            scope.spawn(run).join().unwrap()
        })
    }

    /// Writes files and records them as due now.
    pub(crate) fn write(&self, files: usize, size: usize, content: u8) {
        let bytes = vec![content; size];
        (0..files)
            .for_each(|number| std::fs::write(self.tree().join(format!("{number:04}")), &bytes).unwrap());
        self.with_vault(|vault| {
            let when = When::now(vault.clock.now(), 0);
            let changes: Vec<Change> =
                (0..files).map(|number| Change::modify_whole(format!("{number:04}"), when)).collect();
            vault.changelog.record(&changes).unwrap();
        });
    }

    pub(crate) fn wait_until_done(&self) {
        self.with_vault(|vault| {
            until("nothing is pending", || vault.changelog.pending().unwrap().entries() == 0);
        });
    }

    /// Number of claims of a host's workers.
    pub(crate) fn claims(vault: &Vault, host: usize) -> u64 {
        let workers = vault.changelog.workers(vault.clock.now()).unwrap();
        workers.iter().filter(|it| it.worker.host() == Network::name(host)).map(|it| it.claims).sum()
    }

    /// Drops all packets of a host.
    pub(crate) fn cut(&self, host: usize) {
        let space = self.namespace(&host.to_string());
        let nft = |rule: &str| tool("ip", &["netns", "exec", &space, "nft", rule]);
        nft("add table inet cut");
        nft("add chain inet cut in { type filter hook input priority 0; policy drop; }");
        nft("add chain inet cut out { type filter hook output priority 0; policy drop; }");
    }

    pub(crate) fn heal(&self, host: usize) {
        tool("ip", &["netns", "exec", &self.namespace(&host.to_string()), "nft", "delete table inet cut"]);
    }

    /// Expects that everything is protected and intact.
    pub(crate) fn assert_clean(&self) {
        self.expect(1, 0, &["scrub", "tree"]);
        self.expect(1, 0, &["status", "tree"]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        let hosts = (0..self.hosts).map(|host| host.to_string());
        for name in hosts.chain(["switch".to_owned()]) {
            let _ = Command::new("ip").args(["netns", "del", &self.namespace(&name)]).output();
        }
    }
}
