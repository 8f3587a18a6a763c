//! `gabion daemon` as a process: its socket, signals, and real mounts.

/// One module around all of them: runs that have nothing to gain from these tests leave them out by its name.
mod daemon {
    mod api;
    #[path = "../../mount/can_mount.rs"]
    mod can_mount;
    #[path = "../../vault/captured_output.rs"]
    mod captured_output;
    mod control;
    #[path = "../../vault/corruption.rs"]
    mod corruption;
    mod disks;
    mod faults;
    mod fixture;
    mod http;
    mod idle;
    mod metrics;
    mod notifications;
    mod pool;
    mod schema;
    mod servers;
    mod storms;
    mod supervision;
    #[path = "../../vault/test_rng.rs"]
    mod test_rng;
}
