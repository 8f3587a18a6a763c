//! Drops the privileges that a long-running process of root does not need.
//!
//! `gabion daemon run`, `gabion mount` and `gabion watch` read and write files of all users, so root often starts them.
//! All other capabilities of root are dropped before the first file is opened: an attacker who takes over the process
//! cannot load modules, change the network, trace other processes or start setuid programs.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use std::io;

/// Capabilities that are kept, each with the reason. `package/gabion.service` has the same list.
pub const KEPT: [(CapabilitySet, &str); 10] = [
    (CapabilitySet::SYS_ADMIN, "mounting, and events of whole file systems (fanotify)"),
    (CapabilitySet::DAC_OVERRIDE, "writing files of all users"),
    (CapabilitySet::DAC_READ_SEARCH, "reading files of all users, and opening them by handle"),
    (CapabilitySet::CHOWN, "giving restored files to their owners"),
    (CapabilitySet::FOWNER, "modes, times and attributes of files of all users"),
    (CapabilitySet::FSETID, "keeping the setgid bit of files of other groups"),
    (CapabilitySet::SETFCAP, "file capabilities that programs set through a mount"),
    (CapabilitySet::MKNOD, "device nodes that programs make through a mount"),
    (CapabilitySet::SETUID, "making files for their users"),
    (CapabilitySet::SETGID, "making files for their groups"),
];

/// Number of capabilities that this program knows; later kernels may have more, up to the size of the set.
const MOST: u32 = u64::BITS;

/// Drops all capabilities except [`KEPT`] and sets `no_new_privs`. Nothing changes for users other than root: they have
/// no capabilities, and mount with the setuid program `fusermount3`.
///
/// Must be called before any thread is started: running threads keep their capabilities.
///
/// # Errors
/// A system call failed.
pub fn drop_unneeded() -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let kept = KEPT.iter().fold(CapabilitySet::empty(), |all, (one, _)| all | *one);
    let now = capabilities(None)?;
    // Without this capability, as in most containers, the bounding set stays. It only limits programs that are started
    // later, and `no_new_privs` below keeps these from gaining anything.
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..MOST {
            let one = CapabilitySet::from_bits_retain(1 << number);
            // Numbers beyond the last one that the kernel has are refused.
            if !kept.contains(one) && capability_is_in_bounding_set(one).unwrap_or(false) {
                remove_capability_from_bounding_set(one)?;
            }
        }
    }
    set_capabilities(
        None,
        CapabilitySets {
            effective: now.effective & kept,
            permitted: now.permitted & kept,
            inheritable: now.inheritable & kept,
        },
    )?;
    set_no_new_privs(true)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::KEPT;

    /// The unit of the service manager limits the process to what the process keeps by itself, no more and no less.
    #[test]
    fn the_unit_has_the_same_list() {
        let unit = include_str!("../../../package/gabion.service");
        let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
        let mut listed: Vec<&str> = line.split(' ').collect();
        let mut kept: Vec<String> = KEPT
            .iter()
            .map(|(one, _)| one.iter_names().map(|(name, _)| format!("CAP_{name}")).collect())
            .collect();
        listed.sort_unstable();
        kept.sort_unstable();
        assert_eq!(listed, kept);
    }
}
