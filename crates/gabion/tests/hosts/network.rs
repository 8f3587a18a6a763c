//! Hosts for tests: network namespaces on a bridge in a namespace of its own, each with a host name of its own, and a
//! Redis server on the first one. They share one file system, as hosts with shared storage do.

use crate::truth::{Reference, bytes_of};
use crate::worker::Follower;
use gabion_testkit::{Hosts, until};
use gabion_vault::changelog::{Change, When, remember_password};
use gabion_vault::storage::pool::{NewTarget, Options, Pool};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::Clock;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;

/// The first password of the server.
const PASSWORD: &str = "correct-horse";

/// Ports of the server and of its replica.
const PORT: &str = "6379";
const OTHER_PORT: &str = "6380";

/// The time of day of a process, so many seconds ahead.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
  const char *text = getenv("SECONDS_AHEAD");
  return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && clock == CLOCK_REALTIME) now->tv_sec += ahead();
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
"#;

/// Some hosts and a server. Host 0 has the server, the others are for workers.
pub(crate) struct Network {
    hosts: Hosts,
    /// Seconds by which the clock of each host is ahead.
    ahead: Vec<i64>,
    server: Option<Child>,
    /// Password of the server. Programs have it in a file.
    password: String,
    /// Address of the changelog.
    address: &'static str,
    /// Why the server serves nobody although it answers.
    is_refusing: bool,
    dir: tempfile::TempDir,
    /// Hosts that are cut off from the server.
    cut: Mutex<BTreeSet<usize>>,
    /// Hosts that reach the server sometimes.
    lossy: Mutex<BTreeSet<usize>>,
    reference: Mutex<Reference>,
}

fn tool(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap_or_else(|error| {
        panic!("{program}: {error}. These tests need the packages gcc, iproute2, nftables and redis-server")
    });
    assert!(output.status.success(), "{program} {}: {output:?}", args.join(" "));
}

impl Network {
    /// None, with a visible skip, where no network namespaces can be made.
    pub(crate) fn new(test: &str, workers: usize) -> Option<Network> {
        Network::with_clocks(test, &vec![0; workers + 1])
    }

    /// As [`new`](Network::new), for a test that changes the password. This process knows passwords by address, and all
    /// tests in it use the same server address; so this deployment is in another database of its server.
    pub(crate) fn with_another_address(test: &str, workers: usize) -> Option<Network> {
        Network::with(test, &vec![0; workers + 1], "redis://10.99.0.1:6379/1")
    }

    /// As [`new`](Network::new), with hosts whose clocks are ahead by these numbers of seconds.
    pub(crate) fn with_clocks(test: &str, ahead: &[i64]) -> Option<Network> {
        Network::with(test, ahead, "redis://10.99.0.1:6379/")
    }

    fn with(test: &str, ahead: &[i64], address: &'static str) -> Option<Network> {
        let hosts = match Hosts::new(ahead.len()) {
            Ok(hosts) => hosts,
            Err(error) => {
                gabion_testkit::skip(test, format!("no network namespaces: {error}"));
                return None;
            }
        };
        let dir = tempfile::tempdir().unwrap();
        let mut network = Network {
            hosts,
            ahead: ahead.to_vec(),
            server: None,
            password: PASSWORD.to_owned(),
            address,
            is_refusing: false,
            dir,
            cut: Mutex::default(),
            lossy: Mutex::default(),
            reference: Mutex::default(),
        };
        std::fs::create_dir(network.tree()).unwrap();
        network.tell_password();
        if ahead.iter().any(|&seconds| seconds != 0) {
            std::fs::write(network.dir.path().join("clock.c"), CLOCK).unwrap();
            let source = network.dir.path().join("clock.c");
            let library = network.clock_library();
            tool("gcc", &["-shared", "-fPIC", "-o", library.to_str().unwrap(), source.to_str().unwrap()]);
        }
        network.start_server();
        network.expect(1, 0, &["protect", "tree", "--code", "2+1", "--changelog", address]);
        Some(network)
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    /// The redundancy file of a file.
    pub(crate) fn redundancy(&self, name: &str) -> PathBuf {
        self.tree().join(".gabion/redundancy").join(name)
    }

    fn password_file(&self) -> PathBuf {
        self.dir.path().join("password")
    }

    /// Tells all programs the password, also running ones.
    pub(crate) fn tell_password(&self) {
        let draft = self.dir.path().join("password.draft");
        std::fs::write(&draft, &self.password).unwrap();
        std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(draft, self.password_file()).unwrap();
    }

    /// Begins to run a server with a directory of its own.
    fn spawn_server(&self, directory: &str, port: &str) -> Child {
        let directory = self.dir.path().join(directory);
        std::fs::create_dir_all(&directory).unwrap();
        let mut command = self.on(0, "redis-server");
        command.args(["--bind", "10.99.0.1", "--port", port, "--save", "", "--requirepass", &self.password]);
        command.args(["--masterauth", &self.password, "--appendonly", "yes", "--appendfsync", "always"]);
        command.arg("--dir").arg(directory);
        let server = command.stdout(Stdio::null()).spawn().unwrap();
        until("redis-server answers", || {
            self.ask_server(port, &["ping"]).is_some_and(|said| said == "PONG\n")
        });
        server
    }

    /// What the server on a port answers, if it does.
    pub(crate) fn ask_server(&self, port: &str, question: &[&str]) -> Option<String> {
        let mut client = self.on(0, "redis-cli");
        client
            .args(["-h", "10.99.0.1", "-p", port, "--no-auth-warning", "-a", &self.password])
            .args(question);
        let output = client.output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()
    }

    /// Changes a setting of the server.
    pub(crate) fn set(&self, setting: &str, value: &str) {
        assert_eq!(self.ask_server(PORT, &["config", "set", setting, value]).as_deref(), Some("OK\n"));
    }

    pub(crate) fn start_server(&mut self) {
        self.server = Some(self.spawn_server("redis", PORT));
    }

    pub(crate) fn kill_server(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Loses what a killed server has.
    pub(crate) fn forget_server(&self) {
        std::fs::remove_dir_all(self.dir.path().join("redis")).unwrap();
    }

    /// A server that has what the first one has now, and learns no more of it: its link is cut.
    pub(crate) fn replica(&self) -> Child {
        let replica = self.spawn_server("replica", OTHER_PORT);
        let said = |text: &str| {
            self.ask_server(OTHER_PORT, &["info", "replication"]).is_some_and(|it| it.contains(text))
        };
        self.ask_server(OTHER_PORT, &["replicaof", "10.99.0.1", PORT]).unwrap();
        until("the replica has everything", || said("master_link_status:up"));
        let offset = |port: &str| {
            let told = self.ask_server(port, &["info", "replication"]).unwrap();
            told.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).unwrap().to_owned()
        };
        until("it has the last write", || offset(PORT) == offset(OTHER_PORT));
        self.ask_server(OTHER_PORT, &["replicaof", "no", "one"]).unwrap();
        until("it is cut", || said("role:master"));
        replica
    }

    /// The server dies, and a replica is promoted: it has the same address.
    pub(crate) fn fail_over(&mut self, replica: Child) {
        self.kill_server();
        assert_eq!(self.ask_server(OTHER_PORT, &["config", "set", "port", PORT]).as_deref(), Some("OK\n"));
        self.server = Some(replica);
    }

    /// Gives the server another password, which nobody is told, and ends all connections.
    pub(crate) fn change_password(&mut self, password: &str) {
        self.set("requirepass", password);
        self.password = password.to_owned();
        self.ask_server(PORT, &["client", "kill", "type", "normal"]).unwrap();
        self.is_refusing = true;
    }

    /// Whether the server serves nobody although it answers.
    pub(crate) fn refuses(&mut self, is_refusing: bool) {
        self.is_refusing = is_refusing;
    }

    /// Where a host keeps its copy of the catalogue.
    pub(crate) fn cache(&self, host: usize) -> PathBuf {
        self.dir.path().join(format!("cache{host}"))
    }

    /// Name of a host, as `uname` gives it there.
    pub(crate) fn name(host: usize) -> String {
        Hosts::name(host)
    }

    /// A library that makes the clock of a process ahead.
    fn clock_library(&self) -> PathBuf {
        self.dir.path().join("clock.so")
    }

    /// A program on a host.
    pub(crate) fn on(&self, host: usize, program: &str) -> Command {
        let mut command = self.hosts.command(host, program);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command.env_remove("GABION_REDIS_PASSWORD").env("GABION_REDIS_PASSWORD_FILE", self.password_file());
        command.env_remove("GABION_REPOSITORY").env("GABION_CACHE", self.cache(host));
        if self.ahead[host] != 0 {
            command
                .env("LD_PRELOAD", self.clock_library())
                .env("SECONDS_AHEAD", self.ahead[host].to_string());
        }
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

    /// From now on files are due when they have rested for a second.
    pub(crate) fn be_quick(&self) {
        let policy = "[default]\ncode = \"2+1\"\nquiet = \"1s\"\n";
        std::fs::write(self.tree().join(".gabion/policy.toml"), policy).unwrap();
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
        let mut mount = self.monitor(host, "mount", "tree", &[&[&at, "--json"], more].concat());
        mount.wait_for("mounted");
        let at = mount.sees(&self.dir.path().canonicalize().unwrap().join(at));
        (mount, at)
    }

    /// A watch of the tree on a host.
    pub(crate) fn watch(&self, host: usize) -> Follower {
        let mut watch = self.monitor(host, "watch", "tree", &["--json"]);
        watch.wait_for("watch_started");
        watch
    }

    /// A protected pool with so many targets beside the tree, and the name of the first one.
    pub(crate) fn pool(&self, targets: usize) -> String {
        let target =
            |number| NewTarget { path: self.tree().with_file_name(format!("d{number}")), domain: None };
        let targets: Vec<NewTarget> = (0..targets).map(target).collect();
        Pool::create("tank", &targets, 1, 64 << 10, 1, Options::default()).unwrap();
        self.expect(0, 0, &["protect", "d0", "--changelog", self.address]);
        "d0".to_owned()
    }

    /// A mount or a watch of a tree or pool.
    pub(crate) fn monitor(&self, host: usize, command: &str, source: &str, args: &[&str]) -> Follower {
        let started = self.gabion(host, &[&[command, source], args].concat());
        Follower::spawn(started, self.dir.path(), &format!("{command}{host}"))
    }

    /// Runs `work` with the vault, opened from the server's host.
    pub(crate) fn with_vault<T: Send>(&self, work: impl FnOnce(&Vault) -> T + Send) -> T {
        let within = || {
            let with_password = format!("redis://:{}@", self.password);
            remember_password(&self.address.replacen("redis://", &with_password, 1));
            let mut location = Location::find(&self.tree(), None).unwrap();
            location.cache = Some(self.cache(0));
            let vault = Vault::open(&location, Clock::System).unwrap();
            work(&vault)
        };
        self.hosts.within(0, within).unwrap()
    }

    /// Writes files and records them as due now.
    pub(crate) fn write(&self, files: usize, size: usize, seed: u64) {
        self.write_files(files, size, seed);
        self.record(files);
    }

    /// Writes a file and records it as due now.
    pub(crate) fn write_one(&self, name: &str, size: usize, seed: u64) {
        self.write_named(name, size, seed);
        self.with_vault(|vault| {
            let when = When::now(vault.clock.now(), 0);
            vault.changelog.record(&[Change::modify_whole(name, when)]).unwrap();
        });
    }

    fn write_named(&self, name: &str, size: usize, seed: u64) {
        std::fs::write(self.tree().join(name), bytes_of(size, seed)).unwrap();
        self.reference.lock().unwrap().insert(name.to_owned(), (size, seed));
    }

    /// Writes files of which nobody is told.
    pub(crate) fn write_files(&self, files: usize, size: usize, seed: u64) {
        for number in 0..files {
            self.write_named(&format!("{number:04}"), size, seed << 32 | number as u64);
        }
    }

    /// Records files as due now.
    pub(crate) fn record(&self, files: usize) {
        self.with_vault(|vault| {
            let when = When::now(vault.clock.now(), 0);
            let changes: Vec<Change> =
                (0..files).map(|number| Change::modify_whole(format!("{number:04}"), when)).collect();
            vault.changelog.record(&changes).unwrap();
        });
    }

    /// Records that anything may have changed below a path.
    pub(crate) fn record_gap(&self, path: &str) {
        self.with_vault(|vault| {
            let when = When::now(vault.clock.now(), 0);
            vault.changelog.record(&[Change::gap(path, when)]).unwrap();
        });
    }

    /// What was written.
    pub(crate) fn reference(&self) -> Reference {
        self.reference.lock().unwrap().clone()
    }

    pub(crate) fn hosts(&self) -> usize {
        self.ahead.len()
    }

    /// Whether a host may not reach the server although it is there.
    pub(crate) fn is_lossy(&self, host: usize) -> bool {
        self.lossy.lock().unwrap().contains(&host)
    }

    /// Whether a host reaches the server.
    pub(crate) fn is_reachable(&self, host: usize) -> bool {
        self.server.is_some() && !self.is_refusing && !self.cut.lock().unwrap().contains(&host)
    }

    pub(crate) fn wait_until_done(&self) {
        self.with_vault(|vault| {
            until("nothing is pending", || vault.changelog.pending().unwrap().entries() == 0);
        });
    }

    /// Waits until somebody has protected everything.
    pub(crate) fn wait_until_protected(&self) {
        until("everything is protected", || {
            self.truth();
            self.gabion(0, &["status", "tree"]).output().unwrap().status.success()
        });
        self.wait_until_done();
    }

    /// Number of claims of a host's workers.
    pub(crate) fn claims(vault: &Vault, host: usize) -> u64 {
        let workers = vault.changelog.workers(vault.clock.now()).unwrap();
        workers.iter().filter(|it| it.worker.host() == Network::name(host)).map(|it| it.claims).sum()
    }

    /// Runs `nft` on a host.
    fn nft(&self, host: usize, rule: &str) {
        tool("ip", &["netns", "exec", &self.hosts.namespace(&host.to_string()), "nft", rule]);
    }

    /// Packets that a host drops: those of both directions that a rule matches.
    fn drop_packets(&self, host: usize, matches: &str) {
        self.nft(host, "add table inet cut");
        for direction in ["input", "output"] {
            let chain = format!("{{ type filter hook {direction} priority 0; policy accept; }}");
            self.nft(host, &format!("add chain inet cut {direction} {chain}"));
            self.nft(host, &format!("add rule inet cut {direction} {matches} drop"));
        }
    }

    /// Drops all packets of a host.
    pub(crate) fn cut(&self, host: usize) {
        self.drop_packets(host, "");
        self.cut.lock().unwrap().insert(host);
    }

    /// Drops all packets between workers' hosts: each reaches the server.
    pub(crate) fn cut_from_each_other(&self) {
        for host in 1..self.hosts() {
            self.drop_packets(host, "ip saddr != 10.99.0.1 ip daddr != 10.99.0.1");
        }
    }

    /// Loses some packets of a host.
    pub(crate) fn lose(&self, host: usize, percent: u32) {
        self.drop_packets(host, &format!("numgen random mod 100 < {percent}"));
        self.lossy.lock().unwrap().insert(host);
    }

    /// Limits what a host sends.
    pub(crate) fn slow_down(&self, host: usize, rate: &str) {
        let space = self.hosts.namespace(&host.to_string());
        let limit = ["root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms"];
        tool("tc", &[&["-n", &space, "qdisc", "add", "dev", "eth0"][..], &limit].concat());
    }

    pub(crate) fn heal(&self, host: usize) {
        self.nft(host, "delete table inet cut");
        self.cut.lock().unwrap().remove(&host);
        self.lossy.lock().unwrap().remove(&host);
    }
}

impl Network {
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
    }
}
