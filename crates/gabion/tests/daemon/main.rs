//! `gabion daemon` as service managers, administrators and strangers meet it: the real program, its socket, real mounts.

/// One module around all of them: runs that have nothing to gain from these tests leave them out by its name.
mod daemon {
    mod control;
    mod disks;
    mod faults;
    mod ground;
    mod pool;
    #[path = "../../vault/said.rs"]
    mod said;
    #[path = "../../vault/seed.rs"]
    mod seed;
    mod supervision;
}
