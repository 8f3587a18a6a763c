//! `gabion daemon` as service managers, administrators and strangers meet it: the real program, its socket, real mounts.

mod control;
mod faults;
mod ground;
mod pool;
mod supervision;
