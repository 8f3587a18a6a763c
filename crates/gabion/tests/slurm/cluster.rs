//! Slurm on one node of this machine: munged, slurmctld and slurmd in a directory of their own.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gabion");

/// User of the jobs.
const USER: &str = "nobody";

pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    /// Ended in reverse order.
    daemons: Vec<Child>,
}

impl Cluster {
    /// Starts a cluster; none if that is not possible on this machine.
    pub(crate) fn start(test: &str) -> Option<Cluster> {
        let has = |program: &str| Command::new(program).arg("-V").output().is_ok();
        if !rustix::process::geteuid().is_root() {
            gabion_testkit::skip(test, "Slurm needs root to run jobs of users");
            return None;
        }
        if !["slurmctld", "slurmd", "munged"].into_iter().all(has) {
            gabion_testkit::skip(test, "there is no Slurm: apt install slurmctld slurmd slurm-client munge");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut cluster = Cluster { dir, daemons: Vec::new() };
        cluster.munge();
        cluster.configure();
        for daemon in ["slurmctld", "slurmd"] {
            let log = std::fs::File::create(cluster.path(&format!("{daemon}.out"))).unwrap();
            let mut command = cluster.command(daemon);
            command.arg("-D").stdout(log.try_clone().unwrap()).stderr(log);
            cluster.daemons.push(command.spawn().unwrap());
        }
        gabion_testkit::until("the node is idle", || {
            let output = cluster.command("sinfo").args(["-h", "-o", "%T"]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).trim() == "idle"
        });
        Some(cluster)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn munge(&mut self) {
        let (private, socket) = (self.path("munge"), self.path("socket"));
        for dir in [&private, &socket] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(private.join("key"), [3; 1024]).unwrap();
        let run = |program: &str, args: &[&str], path: &Path| {
            assert!(Command::new(program).args(args).arg(path).status().unwrap().success(), "{program}");
        };
        run("chmod", &["700"], &private);
        run("chmod", &["400"], &private.join("key"));
        run("chmod", &["755"], &socket);
        run("chown", &["-R", "munge:munge"], &private);
        run("chown", &["munge:munge"], &socket);
        let named = |option: &str, path: PathBuf| format!("--{option}={}", path.display());
        let daemon = Command::new("setpriv")
            .args([
                "--reuid",
                "munge",
                "--regid",
                "munge",
                "--init-groups",
                "munged",
                "--force",
                "--foreground",
            ])
            .arg(named("key-file", private.join("key")))
            .arg(named("socket", socket.join("s")))
            .arg(named("pid-file", private.join("pid")))
            .arg(named("log-file", private.join("log")))
            .arg(named("seed-file", private.join("seed")))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.daemons.push(daemon);
        gabion_testkit::until("munged listens", || socket.join("s").exists());
    }

    fn configure(&self) {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../package/slurm");
        let programs = Path::new(PROGRAM).parent().unwrap().display();
        std::fs::write(self.path("settings"), format!("PATH={programs}:$PATH\ndeadline=240s\n")).unwrap();
        for script in ["prolog", "epilog"] {
            let (settings, script_path) = (self.path("settings"), package.join(script));
            let text = format!(
                "#!/bin/sh\nexport GABION_SLURM_SETTINGS={}\nexport GABION_CACHE={}\nexec {}\n",
                settings.display(),
                self.path("cache").display(),
                script_path.display()
            );
            std::fs::write(self.path(script), text).unwrap();
            std::fs::set_permissions(self.path(script), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        for dir in ["state", "spool"] {
            std::fs::create_dir(self.path(dir)).unwrap();
        }
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = name.trim().split('.').next().unwrap();
        let (controller, node) = (gabion_testkit::port(), gabion_testkit::port());
        let dir = self.dir().display();
        let text = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\nSlurmdPort={node}\n\
             AuthType=auth/munge\nAuthInfo=socket={dir}/socket/s\nCredType=cred/munge\n\
             SlurmUser=root\nSlurmdUser=root\nStateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/spool\n\
             SlurmctldPidFile={dir}/slurmctld.pid\nSlurmdPidFile={dir}/slurmd.pid\n\
             SlurmctldLogFile={dir}/slurmctld.log\nSlurmdLogFile={dir}/slurmd.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
             AccountingStorageType=accounting_storage/none\nJobCompType=jobcomp/none\nSwitchType=switch/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nMpiDefault=none\nReturnToService=2\n\
             SchedulerType=sched/backfill\nMessageTimeout=100\nPrologEpilogTimeout=600\nBatchStartTimeout=600\n\
             Prolog={dir}/prolog\nEpilog={dir}/epilog\nPrologFlags=Alloc\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN\nSlurmdParameters=config_overrides\n\
             PartitionName=p Nodes=ALL Default=YES MaxTime=60 State=UP\n"
        );
        std::fs::write(self.path("slurm.conf"), text).unwrap();
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.path("slurm.conf")).stdin(Stdio::null());
        command
    }

    fn run_gabion(&self, args: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(self.dir()).env("GABION_CACHE", self.path("cache"));
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs the program and expects an exit code.
    pub(crate) fn gabion(&self, code: i32, args: &[&str]) {
        let output = self.run_gabion(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "gabion {}: {said}", args.join(" "));
    }

    /// True if a file is protected in its present version.
    pub(crate) fn is_unchanged(&self, path: &str) -> bool {
        self.run_gabion(&["check", path]).status.success()
    }

    /// Runs a job of an ordinary user in a directory. Returns its state when it has ended, or is held.
    pub(crate) fn job(&self, dir: &Path, comment: &str, script: &str) -> String {
        let mut submit = Command::new("setpriv");
        submit.args(["--reuid", USER, "--regid", "nogroup", "--clear-groups", "sbatch", "--parsable"]);
        submit.env("SLURM_CONF", self.path("slurm.conf")).stdin(Stdio::null()).current_dir(dir);
        submit.args(["--comment", comment, "--output", "/dev/null", "--wrap", script]);
        let output = submit.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "sbatch: {said}");
        let id = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        gabion_testkit::until_some("the job has ended or is held", || {
            let output = self.command("scontrol").args(["--oneliner", "show", "job", &id]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let of = |key: &str| {
                let field = text.split(' ').find_map(|field| field.strip_prefix(key));
                field.unwrap_or_default().to_owned()
            };
            let (state, reason) = (of("JobState="), of("Reason="));
            let has_ended = !matches!(&*state, "" | "PENDING" | "CONFIGURING" | "RUNNING" | "COMPLETING");
            let is_held = state == "PENDING" && reason.to_lowercase().contains("held");
            (has_ended || is_held).then_some(state)
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for mut daemon in self.daemons.drain(..).rev() {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_child(&daemon),
                rustix::process::Signal::TERM,
            );
            let _ = daemon.wait();
        }
    }
}
