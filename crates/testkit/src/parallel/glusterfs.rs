//! GlusterFS: one machine with a distributed volume and a mount.

use super::{Space, is_mounted, run, unmount};
use crate::until;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

const HOST: &str = "10.78.0.1";

/// Name of the volume.
const VOLUME: &str = "dist";

/// A running GlusterFS with one distributed volume. Brick n, from 0, is `10.78.0.1:DIRECTORY/brick<n>/b`.
#[derive(Debug)]
pub struct GlusterFs {
    space: Space,
    directory: PathBuf,
}

impl GlusterFs {
    /// Starts GlusterFS with this number of bricks under `directory`, which has to be on a file system with trusted
    /// attributes.
    ///
    /// # Errors
    /// GlusterFS is not installed, or namespaces cannot be made: reasons to skip a test.
    ///
    /// # Panics
    /// It does not come up.
    pub fn start(directory: &Path, bricks: usize) -> io::Result<GlusterFs> {
        for program in ["glusterd", "gluster", "glusterfs"] {
            let found = Command::new(program).arg("--version").output();
            found.map_err(|error| io::Error::other(format!("{program}: {error}")))?;
        }
        // Bricks refuse addresses of the loopback network.
        let space = Space::new(&[HOST.to_owned()])?;
        let mut system = GlusterFs { space, directory: directory.to_owned() };
        system.start_daemon()?;
        until("glusterd answers", || system.gluster(&["pool", "list"]).is_ok());
        let bricks: Vec<String> = (0..bricks).map(|number| system.brick(number)).collect();
        (0..bricks.len())
            .try_for_each(|number| fs::create_dir_all(system.path(&format!("brick{number}"))))?;
        let mut create = vec!["volume", "create", VOLUME];
        create.extend(bricks.iter().map(String::as_str));
        create.push("force");
        system.gluster(&create)?;
        system.gluster(&["volume", "start", VOLUME])?;
        system.mount(bricks.len())?;
        Ok(system)
    }

    /// Root of the mounted volume. Its own files may be on some bricks only: tests make a directory in it.
    pub fn root(&self) -> PathBuf {
        self.path("mnt")
    }

    /// Name of a brick.
    pub fn brick(&self, number: usize) -> String {
        format!("{HOST}:{}", self.brick_directory(number).display())
    }

    /// Directory of a brick.
    pub fn brick_directory(&self, number: usize) -> PathBuf {
        self.path(&format!("brick{number}/b"))
    }

    /// A directory with a `gluster` that reaches this daemon.
    pub fn tools(&self) -> PathBuf {
        self.path("tools")
    }

    /// A program that reaches the servers.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.space.command(program)
    }

    /// Kills the process of a brick, and waits until the volume knows.
    ///
    /// # Panics
    /// It does not run.
    pub fn kill_brick(&self, number: usize) {
        let name = format!("--brick-name {}", self.brick_directory(number).display());
        for process in processes_with(&name) {
            let _ = Command::new("kill").args(["-9", &process]).output();
        }
        until("the brick is gone", || processes_with(&name).is_empty());
    }

    /// Starts all bricks again that do not run.
    ///
    /// # Errors
    /// GlusterFS refuses.
    ///
    /// # Panics
    /// A brick does not start.
    pub fn restart_bricks(&self, count: usize) -> io::Result<()> {
        self.gluster(&["volume", "start", VOLUME, "force"])?;
        until("all bricks run", || {
            (0..count).all(|number| {
                !processes_with(&format!("--brick-name {}", self.brick_directory(number).display()))
                    .is_empty()
            })
        });
        Ok(())
    }

    /// Runs `gluster`.
    ///
    /// # Errors
    /// It fails.
    pub fn gluster(&self, arguments: &[&str]) -> io::Result<String> {
        let mut command = self.space.command(self.tools().join("gluster"));
        run(command.arg("--mode=script").args(arguments))
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn start_daemon(&mut self) -> io::Result<()> {
        for name in ["work", "run", "log", "tools", "mnt"] {
            fs::create_dir_all(self.path(name))?;
        }
        let (work, state) = (self.path("work"), self.path("run"));
        let socket = state.join("glusterd.socket");
        let volume = self.path("glusterd.vol");
        let text = format!(
            "volume management\n    type mgmt/glusterd\n    option working-directory {}\n    option run-directory {}\n    \
             option transport-type socket\n    option transport.address-family inet\n    \
             option transport.socket.bind-address {HOST}\n    option transport.socket.listen-port 24007\n    \
             option glusterd-sockfile {}\n    option base-port 49152\n    option max-port 60999\nend-volume\n",
            work.display(),
            state.display(),
            socket.display()
        );
        fs::write(&volume, text)?;
        let draft = self.path("gluster.draft");
        fs::write(&draft, format!("#!/bin/sh\nexec gluster --glusterd-sock={} \"$@\"\n", socket.display()))?;
        // Another process writes it: one that is open for writing, also in a child of this process, cannot run.
        run(Command::new("install").args(["-m", "755"]).arg(draft).arg(self.tools().join("gluster")))?;
        let mut command = self.space.command("glusterd");
        command.arg("-N").arg(format!("--volfile={}", volume.display()));
        command.arg(format!("--pid-file={}", state.join("glusterd.pid").display()));
        command.arg(format!("--log-file={}", self.path("log/glusterd.log").display()));
        self.space.start("glusterd", &self.path("log/glusterd.out"), &mut command)
    }

    fn mount(&mut self, bricks: usize) -> io::Result<()> {
        let root = self.root();
        let mut command = self.space.command("glusterfs");
        command.arg("-N").arg(format!("--volfile-server={HOST}")).arg(format!("--volfile-id={VOLUME}"));
        command.args(["--attribute-timeout=0", "--entry-timeout=0"]);
        command.arg(format!("--log-file={}", self.path("log/mount.log").display())).arg(&root);
        self.space.start("mount", &self.path("log/mount.out"), &mut command)?;
        until("it is mounted", || is_mounted(&root));
        // A directory that is made before all bricks are connected has files on some of them only.
        let probe = root.join(".probe");
        until("all bricks are connected", || {
            let is_made = fs::create_dir(&probe).is_ok();
            let is_everywhere =
                (0..bricks).all(|number| self.brick_directory(number).join(".probe").exists());
            let _ = fs::remove_dir(&probe);
            is_made && is_everywhere
        });
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for GlusterFs {
    fn drop(&mut self) {
        unmount(&self.root());
        // Bricks are processes of their own. The directory is in all their arguments, and in those of nobody else.
        let marker = format!("{}/", self.directory.display());
        for _ in 0..100 {
            let left: Vec<String> = processes_with(&marker)
                .into_iter()
                .filter(|process| {
                    fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|exe| {
                        exe.file_name().is_some_and(|name| name.to_string_lossy().starts_with("gluster"))
                    })
                })
                .collect();
            if left.is_empty() {
                return;
            }
            for process in left {
                let _ = Command::new("kill").args(["-9", &process]).output();
            }
            // The daemon itself is a child, and has to be waited for.
            for (_, child) in &mut self.space.daemons {
                let _ = child.try_wait();
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// Processes that have this text in their arguments.
fn processes_with(text: &str) -> Vec<String> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = names.filter_map(|entry| entry.file_name().into_string().ok());
    processes
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|process| {
            let arguments = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&arguments).replace('\0', " ").contains(text)
        })
        .collect()
}
