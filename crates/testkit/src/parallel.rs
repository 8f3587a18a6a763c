//! Real parallel file systems on one machine, each in a network namespace of its own: MooseFS and GlusterFS.

mod glusterfs;
mod moosefs;

pub use glusterfs::GlusterFs;
pub use moosefs::MooseFs;

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// Namespaces of this process so far.
static SPACES: AtomicU32 = AtomicU32::new(0);

/// A network namespace with addresses on its loopback device, and the programs in it.
#[derive(Debug)]
struct Space {
    name: String,
    daemons: Vec<(String, Child)>,
}

impl Space {
    fn new(addresses: &[String]) -> io::Result<Space> {
        let number = SPACES.fetch_add(1, Ordering::Relaxed);
        let space = Space { name: format!("gabion-{}-p{number}", std::process::id()), daemons: Vec::new() };
        run(Command::new("ip").args(["netns", "add", &space.name]))?;
        run(Command::new("ip").args(["-n", &space.name, "link", "set", "lo", "up"]))?;
        for address in addresses {
            run(Command::new("ip").args([
                "-n",
                &space.name,
                "addr",
                "add",
                &format!("{address}/32"),
                "dev",
                "lo",
            ]))?;
        }
        Ok(space)
    }

    /// A program in the namespace. The process is the program itself, not a parent of it.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    /// Starts a program that stays in the foreground.
    fn start(&mut self, name: &str, log: &Path, command: &mut Command) -> io::Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        let child = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        self.daemons.push((name.to_owned(), child));
        Ok(())
    }

    /// Kills a program and waits for its end.
    fn kill(&mut self, name: &str) {
        let at = self.daemons.iter().position(|(known, _)| known == name);
        let (_, mut child) = self.daemons.remove(at.unwrap_or_else(|| panic!("{name} does not run")));
        end(&mut child);
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.daemons.iter_mut().rev().for_each(|(_, child)| end(child));
        // It may not have been made.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

fn end(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

fn run(command: &mut Command) -> io::Result<Output> {
    let output = command.output().map_err(|error| io::Error::other(format!("{command:?}: {error}")))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {}", said.trim())))
}

/// Unmounts, also what is busy.
fn unmount(point: &Path) {
    let _ = Command::new("umount").arg("-l").arg(point).output();
}

/// True if something is mounted at `point`.
fn is_mounted(point: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(4) == point.to_str())
}
