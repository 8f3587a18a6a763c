//! The condition of tests that mount.

use std::path::Path;

/// Whether a test that mounts can run; says so if it cannot.
pub(crate) fn can_mount(test: &str) -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        gabion_testkit::skip(test, "mounting needs root and /dev/fuse");
    }
    can
}
