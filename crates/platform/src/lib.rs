//! Edges of the operating system that need unsafe code or bindings, behind safe interfaces.
//!
//! What is here knows nothing of redundancy: [`fanotify`] and [`inotify`] tell what changes in a directory tree, in
//! the words of [`event`]; a [`lock`] ends when its holder lets go; [`thread`] is what a thread can have for itself; [`sync`] locks without poisoning; a
//! [`window`] shows files where they lie in memory, [`direct`] reads them past it, to [`memory`] in large pages.

pub mod direct;
pub mod event;
pub mod fanotify;
pub mod fault;
pub mod inotify;
pub mod lock;
pub mod mapping;
pub mod memory;
pub mod open_files;
pub mod private;
pub mod shown;
pub mod sync;
pub mod thread;
pub mod tree;
pub mod window;
pub mod world;
