//! Identity of a worker or monitor: host, process id and number, plus what makes the process id unambiguous.
//!
//! A worker may end the claims of a dead worker without waiting for their leases, but only if it can prove that the
//! process is gone. A process id is not enough: containers may share a host name and have their own process ids, and
//! ids are reused. So the name also holds the kernel's boot id, the inode of the PID namespace and the start time of
//! the process. A worker of another boot or namespace is never declared dead; its leases expire.

use crate::changelog::WorkerId;
use crate::world::{host, process, unique_id};
use rustix::process::{Pid, test_kill_process};

/// Name of a worker of this process; `number` distinguishes workers of one process.
pub fn name(number: u32) -> WorkerId {
    let start = start_time("self").unwrap_or_default();
    WorkerId(format!("{}/{}/{number:08x}/{}/{start}", host(), process(), namespace()))
}

/// Name of a worker of this process, with a number at random.
///
/// # Errors
/// The operating system gives no random number.
pub fn unique_name() -> std::io::Result<WorkerId> {
    let id = unique_id()?;
    Ok(name(u32::from_le_bytes([id[0], id[1], id[2], id[3]])))
}

/// Boot id and PID namespace; empty if the system does not provide them.
fn namespace() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let inode: String = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    match (boot.trim(), inode.as_str()) {
        ("", _) | (_, "") => String::new(),
        (boot, inode) => format!("{boot}.{inode}"),
    }
}

/// Start time of a process in clock ticks since boot; none if it cannot be read.
fn start_time(process: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Field 2 is the program name in parentheses and may contain anything; the start time is the 20th field after it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// True if the worker ran in this boot and PID namespace and its process is gone.
pub(crate) fn is_dead(worker: &WorkerId) -> bool {
    let parts: Vec<&str> = worker.0.split('/').collect();
    let [machine, number, _, space, start] = parts[..] else { return false };
    let Some(pid) = number.parse().ok().and_then(Pid::from_raw) else { return false };
    if machine != host() || space.is_empty() || space != namespace() {
        return false;
    }
    match test_kill_process(pid) {
        Err(rustix::io::Errno::SRCH) => true,
        // The process exists, but the id may have been reused.
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

    /// Environment variable that passes a worker's name to the copy of this test in another namespace.
    const ABOUT: &str = "GABION_TEST_WORKER";

    /// Regression: two containers with the same host name declared each other's workers dead and ended their claims.
    #[test]
    fn a_worker_in_another_namespace_of_processes_is_not_called_dead() {
        if let Ok(about) = std::env::var(ABOUT) {
            println!("dead: {}", is_dead(&WorkerId(about)));
            return;
        }
        let test = "identity::tests::a_worker_in_another_namespace_of_processes_is_not_called_dead";
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
        // Without proof a worker is not dead.
        for unknown in
            [elsewhere, rebooted, WorkerId(format!("{}/1/1", host())), WorkerId("worker".to_owned())]
        {
            assert!(!is_dead(&unknown), "{unknown:?}");
        }
    }
}
