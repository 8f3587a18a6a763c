//! Power cuts: work that a command or mount acknowledged is durable.
//!
//! Disks are images with ext4 on loop devices. A cut is the file system's own emergency stop (`FS_IOC_SHUTDOWN`
//! without a flush of the journal): nothing that was not synced reaches the image any more, as if the machine had
//! lost its power. Then the disk is mounted again, which replays the journal.
//!
//! Power is cut after commands that ended with exit code 0, after commands that were killed before a counted change
//! of files, and while programs write through a mount. `GABION_CRASH_POINTS=all` visits all changes, otherwise a
//! sample.

#[path = "../mount/can_mount.rs"]
mod can_mount;
#[path = "../vault/corruption.rs"]
mod corruption;
mod disks;
#[allow(dead_code, reason = "the suite that kills commands uses all of it")]
#[path = "../crash/fixture.rs"]
mod fixture;
mod mounted;
mod plain;
mod pool;
