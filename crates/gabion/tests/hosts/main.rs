//! Workers that stay: on one host with the embedded changelog, and on several hosts with a Redis server. A host is a
//! network namespace with a host name of its own.

mod access;
mod approvals;
mod clocks;
mod consistency;
mod cuts;
mod duplicates;
mod follow;
mod limits;
mod mounts;
mod moves;
mod network;
mod network_faults;
mod pools;
mod portions;
mod ranges;
mod server_faults;
mod shares;
mod sharing;
mod suspended;
mod takeover;
mod truth;
mod worker;
