//! Hosts on one machine: network namespaces on a bridge, which has a namespace of its own.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Networks of this process so far.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// Hosts with a network and a host name each. They share all file systems. Needs root and the package iproute2.
#[derive(Debug)]
pub struct Hosts {
    prefix: String,
    count: usize,
}

/// Gives a host its name and runs a program there.
///
/// The program has a mount namespace of its own, with copies of everything that is mounted. Copies of what other tests
/// have mounted are given up, since a file system that was unmounted stays in use until its last copy is gone.
const ON_HOST: &str = r#"
echo "$0" > /proc/sys/kernel/hostname || exit
while read -r device point kind _; do
    case "$device $kind" in
        /dev/loop* | *" fuse"*) umount -l "$(printf %b "$point")" 2> /dev/null ;;
    esac
done < /proc/mounts
exec "$@""#;

impl Hosts {
    /// Makes a number of hosts.
    ///
    /// # Errors
    /// Namespaces cannot be made here, or `ip` is missing.
    pub fn new(count: usize) -> io::Result<Hosts> {
        run(Command::new("unshare").args(["--net", "--uts", "true"]))?;
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("gabion-{}-{number}-", std::process::id());
        // Dropped, with what is there by then, if a step fails.
        let hosts = Hosts { prefix, count };
        let switch = hosts.namespace("switch");
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "br0", "up"])?;
        for host in 0..count {
            let (space, port) = (hosts.namespace(&host.to_string()), format!("p{host}"));
            ip(&["netns", "add", &space])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
            let pair = ["type", "veth", "peer", "name", "eth0", "netns", &space];
            ip(&[&["-n", &switch, "link", "add", &port][..], &pair].concat())?;
            ip(&["-n", &switch, "link", "set", &port, "master", "br0", "up"])?;
            let address = format!("{}/24", Hosts::address(host));
            ip(&["-n", &space, "addr", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &space, "link", "set", "eth0", "up"])?;
        }
        Ok(hosts)
    }

    /// Name of a namespace: the number of a host, or `switch`.
    pub fn namespace(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Address of a host.
    pub fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, host as u8 + 1)
    }

    /// Name of a host, as `uname` gives it there.
    pub fn name(host: usize) -> String {
        format!("host{host}")
    }

    /// A program on a host.
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(&host.to_string()), "unshare", "--uts", "sh", "-c"]);
        command.args([ON_HOST, &Hosts::name(host)]);
        command.arg(program);
        command
    }

    /// Does `work` in a thread in the network of a host, as do threads that it starts.
    ///
    /// # Errors
    /// The thread cannot enter the namespace.
    ///
    /// # Panics
    /// `work` panics.
    pub fn within<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let space = File::open(format!("/run/netns/{}", self.namespace(&host.to_string())))?;
        std::thread::scope(|scope| {
            let run = || {
                move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(work())
            };
            scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let hosts = (0..self.count).map(|host| host.to_string());
        for name in hosts.chain(["switch".to_owned()]) {
            // It may not have been made.
            let _ = ip(&["netns", "del", &self.namespace(&name)]);
        }
    }
}

fn ip(args: &[&str]) -> io::Result<()> {
    run(Command::new("ip").args(args))
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output().map_err(|error| io::Error::other(format!("{command:?}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {}", said.trim())))
}
