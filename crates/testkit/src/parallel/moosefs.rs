//! MooseFS: a master, chunk servers with an address each, and a mount.

use super::{Space, is_mounted, run, unmount};
use crate::until;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

const MASTER: &str = "10.77.0.1";
const PORT: u16 = 9421;

/// A running MooseFS. Chunk server n, from 0, has the address `10.77.1.(n+1)`, port 9422, and the nth letter as label.
#[derive(Debug)]
pub struct MooseFs {
    space: Space,
    directory: PathBuf,
    servers: usize,
}

impl MooseFs {
    /// Starts a MooseFS with this number of chunk servers under `directory`.
    ///
    /// # Errors
    /// MooseFS is not installed, or namespaces cannot be made: reasons to skip a test.
    ///
    /// # Panics
    /// It does not come up.
    pub fn start(directory: &Path, servers: usize) -> io::Result<MooseFs> {
        for program in ["mfsmaster", "mfschunkserver", "mfsmount", "mfscli"] {
            let found = Command::new(program).arg("-v").output();
            found.map_err(|error| io::Error::other(format!("{program}: {error}")))?;
        }
        let addresses = (0..servers).map(address).chain([MASTER.to_owned()]).collect::<Vec<_>>();
        let space = Space::new(&addresses)?;
        let mut system = MooseFs { space, directory: directory.to_owned(), servers };
        system.start_master()?;
        (0..servers).try_for_each(|server| {
            fs::create_dir_all(system.path(&format!("server{server}/chunks")))?;
            system.start_server(server)
        })?;
        let online = |system: &MooseFs| system.states().iter().filter(|state| **state).count();
        until("all chunk servers are connected", || online(&system) == servers);
        system.mount()?;
        Ok(system)
    }

    /// Root of the mounted file system.
    pub fn root(&self) -> PathBuf {
        self.path("mnt")
    }

    /// Name of a chunk server.
    pub fn server(number: usize) -> String {
        format!("{}:9422", address(number))
    }

    /// A program that reaches the servers.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.space.command(program)
    }

    /// Kills a chunk server, and waits until the master knows.
    ///
    /// # Panics
    /// It does not run, or the master does not notice.
    pub fn kill_server(&mut self, number: usize) {
        self.space.kill(&format!("server{number}"));
        until("the master misses the chunk server", || !self.states()[number]);
    }

    /// Starts a chunk server again.
    ///
    /// # Errors
    /// It cannot be started.
    ///
    /// # Panics
    /// It does not connect to the master.
    pub fn restart_server(&mut self, number: usize) -> io::Result<()> {
        self.start_server(number)?;
        until("the chunk server is back", || self.states()[number]);
        Ok(())
    }

    /// Directory in which a chunk server keeps its chunks.
    pub fn chunks(&self, number: usize) -> PathBuf {
        self.path(&format!("server{number}/chunks"))
    }

    /// Suspends or resumes the master.
    ///
    /// # Panics
    /// It does not run.
    pub fn suspend_master(&self, suspend: bool) {
        let (_, master) =
            self.space.daemons.iter().find(|(name, _)| name == "master").expect("the master runs");
        let signal = if suspend { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([signal, &master.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    /// Which chunk servers are connected and have space.
    fn states(&self) -> Vec<bool> {
        let mut command = self.space.command("mfscli");
        let output = command.args(["-H", MASTER, "-P", &PORT.to_string(), "-SCS", "-p", "-s|"]).output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        // A server that has just connected has no space until it has looked through its disks.
        let has_space = |line: &str| {
            line.split('|').nth(10).is_some_and(|total| total.parse().is_ok_and(|it: u64| it > 0))
        };
        let start = |number: usize| format!("chunk servers:|{}|", address(number));
        let is_up = |number: usize| text.lines().any(|it| it.starts_with(&start(number)) && has_space(it));
        (0..self.servers).map(is_up).collect()
    }

    fn start_master(&mut self) -> io::Result<()> {
        let data = self.path("master");
        fs::create_dir_all(&data)?;
        // The content of an empty file system.
        fs::write(data.join("metadata.mfs"), "MFSM NEW")?;
        let exports = self.path("exports.cfg");
        fs::write(&exports, "10.77.0.0/16 / rw,alldirs,admin,maproot=0:0\n10.77.0.0/16 . rw\n")?;
        fs::write(self.path("topology.cfg"), "")?;
        let config = self.path("master.cfg");
        let (data, exports, topology) = (data.display(), exports.display(), self.path("topology.cfg"));
        let text = format!(
            "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {data}\nEXPORTS_FILENAME = {exports}\n\
             TOPOLOGY_FILENAME = {}\nLOCK_MEMORY = 0\nMATOML_LISTEN_HOST = {MASTER}\nMATOCS_LISTEN_HOST = {MASTER}\n\
             MATOCL_LISTEN_HOST = {MASTER}\nMATOCL_LISTEN_PORT = {PORT}\nREPLICATIONS_DELAY_INIT = 0\n\
             CHUNKS_LOOP_MIN_TIME = 1\n",
            topology.display()
        );
        fs::write(&config, text)?;
        let mut command = self.space.command("mfsmaster");
        command.arg("-f").arg("-c").arg(&config).arg("start");
        self.space.start("master", &self.path("master.log"), &mut command)
    }

    fn start_server(&mut self, number: usize) -> io::Result<()> {
        let directory = self.path(&format!("server{number}"));
        let disks = directory.join("disks.cfg");
        fs::write(&disks, format!("{}\n", directory.join("chunks").display()))?;
        let label = (b'A' + number as u8) as char;
        let address = address(number);
        let config = directory.join("server.cfg");
        let text = format!(
            "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {}\nHDD_CONF_FILENAME = {}\n\
             HDD_LEAVE_SPACE_DEFAULT = 256MiB\nMASTER_HOST = {MASTER}\nMASTER_RECONNECTION_DELAY = 1\n\
             BIND_HOST = {address}\nCSSERV_LISTEN_HOST = {address}\nCSSERV_LISTEN_PORT = 9422\nLABELS = {label}\n",
            directory.display(),
            disks.display()
        );
        fs::write(&config, text)?;
        let mut command = self.space.command("mfschunkserver");
        command.arg("-f").arg("-c").arg(&config).arg("start");
        self.space.start(&format!("server{number}"), &directory.join("log"), &mut command)
    }

    fn mount(&mut self) -> io::Result<()> {
        let root = self.root();
        fs::create_dir_all(&root)?;
        let mut command = self.space.command("mfsmount");
        command.arg("-f").arg(&root).args(["-H", MASTER, "-P", &PORT.to_string()]);
        // A read of a chunk without a server fails at once instead of after minutes.
        command.args(["-o", "mfsioretries=1,allow_other"]);
        self.space.start("mount", &self.path("mount.log"), &mut command)?;
        until("it is mounted", || is_mounted(&root));
        // For a moment the mount refuses, and the master believes that there is no space.
        let probe = root.join(".probe");
        let is_stored = || {
            let mut file = fs::File::create(&probe)?;
            file.write_all(b"content")?;
            file.sync_all()
        };
        until("files can be stored", || is_stored().is_ok());
        fs::remove_file(probe)
    }

    /// Makes a storage class that keeps one copy on the server with this number.
    ///
    /// # Errors
    /// MooseFS refuses.
    pub fn create_class(&self, name: &str, server: usize) -> io::Result<()> {
        let label = (b'A' + server as u8) as char;
        let mut command = self.space.command("mfsscadmin");
        run(command.arg(self.root()).args(["create", "-K", &label.to_string(), name])).map(|_| ())
    }

    /// Gives a path a storage class, or a number of copies as the classes `1` to `9` have.
    ///
    /// # Errors
    /// MooseFS refuses.
    pub fn set_class(&self, class: &str, path: &Path) -> io::Result<()> {
        run(self.space.command("mfssetsclass").args(["-r", class]).arg(path)).map(|_| ())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for MooseFs {
    fn drop(&mut self) {
        // A suspended master would keep the mount from ending.
        if self.space.daemons.iter().any(|(name, _)| name == "master") {
            self.suspend_master(false);
        }
        unmount(&self.root());
    }
}

fn address(server: usize) -> String {
    format!("10.77.1.{}", server + 1)
}
