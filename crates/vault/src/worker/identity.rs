//! Identity of a worker: host, process and number, with what makes the process unambiguous.
//!
//! A worker may end the claims of another one that died without waiting for their leases, but only if it can tell that it died. A process
//! id alone does not tell: containers may share a host name and have process ids of their own, and an id is used again. So a name also has the
//! boot id of the kernel, the inode of the namespace of process ids, and the start time of the process. Workers of another boot or
//! namespace are never called dead; their leases run out.

use crate::changelog::WorkerId;
use crate::world::{host, process};
use rustix::process::{Pid, test_kill_process};

/// The name of a worker of this process; `number` tells it from the others.
pub fn name(number: u32) -> WorkerId {
    let start = start_time("self").unwrap_or_default();
    WorkerId(format!("{}/{}/{number:08x}/{}/{start}", host(), process(), namespace()))
}

/// Boot and namespace in which ids of processes are unambiguous; empty where the system does not tell.
fn namespace() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let inode: String = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    match (boot.trim(), inode.as_str()) {
        ("", _) | (_, "") => String::new(),
        (boot, inode) => format!("{boot}.{inode}"),
    }
}

/// When a process started, in clock ticks since the boot; nothing where that cannot be read.
fn start_time(process: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program is in parentheses and may hold anything; the start is the 20th field after it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Whether a worker was one of this machine, boot and namespace, and its process is gone.
pub(super) fn is_dead(worker: &WorkerId) -> bool {
    let parts: Vec<&str> = worker.0.split('/').collect();
    let [machine, number, _, space, start] = parts[..] else { return false };
    let Some(pid) = number.parse().ok().and_then(Pid::from_raw) else { return false };
    if machine != host() || space.is_empty() || space != namespace() {
        return false;
    }
    match test_kill_process(pid) {
        Err(rustix::io::Errno::SRCH) => true,
        // There is a process of this number; it may be a later one.
        _ => match (start.parse::<u64>(), start_time(number)) {
            (Ok(known), Some(found)) => known != found,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{is_dead, name, namespace, start_time};
    use crate::changelog::WorkerId;
    use crate::world::host;
    use std::process::Command;

    /// Tells the copy of this test in another namespace whose worker to judge.
    const ABOUT: &str = "GABION_TEST_WORKER";

    /// Two containers with one host name, each with process ids of its own, took each other's workers for dead and ended their claims.
    #[test]
    fn a_worker_in_another_namespace_of_processes_is_not_called_dead() {
        if let Ok(about) = std::env::var(ABOUT) {
            println!("dead: {}", is_dead(&WorkerId(about)));
            return;
        }
        let test = "worker::identity::tests::a_worker_in_another_namespace_of_processes_is_not_called_dead";
        let judged = Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", test])
            .env(ABOUT, name(7).0)
            .output()
            .expect("these tests need the program unshare, and root");
        let told = String::from_utf8_lossy(&judged.stdout);
        assert!(told.contains("dead: false"), "{judged:?}");
    }

    #[test]
    fn workers_whose_process_is_gone_are_dead() {
        assert!(!is_dead(&name(1)), "this one lives");
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let start = start_time(&child.id().to_string()).unwrap();
        let of = |start: u64| WorkerId(format!("{}/{}/00000001/{}/{start}", host(), child.id(), namespace()));
        let (living, former) = (of(start), of(start - 1));
        assert!(!is_dead(&living));
        assert!(is_dead(&former), "another process had this number before");
        let elsewhere = WorkerId(living.0.replace(&host(), "elsewhere"));
        let rebooted = WorkerId(living.0.replace(&namespace(), "00000000-0000-0000-0000-000000000000.1"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_dead(&living));
        // What cannot be known is no death.
        for unknown in
            [elsewhere, rebooted, WorkerId(format!("{}/1/1", host())), WorkerId("worker".to_owned())]
        {
            assert!(!is_dead(&unknown), "{unknown:?}");
        }
    }
}
