#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! Safe interfaces to operating-system features that need unsafe code or bindings.
//!
//! Nothing here depends on the other crates of the workspace. [`fanotify`] and [`inotify`] report changes of a
//! directory tree as [`event`]s; [`lock`] wraps file locks and [`lease`] leases; [`thread`] sets attributes of a single
//! thread; [`sync`] locks without poisoning; [`window`] maps parts of files, [`direct`] reads files past the page
//! cache, and [`memory`] allocates huge pages.

pub mod direct;
pub mod display_path;
pub mod event;
pub mod fanotify;
pub mod fault;
pub mod inotify;
pub mod lease;
pub mod local_time;
pub mod lock;
pub mod mapping;
pub mod memory;
pub mod open_files;
pub mod private;
pub mod project;
pub mod sync;
pub mod thread;
pub mod tree;
pub mod window;
pub mod world;
