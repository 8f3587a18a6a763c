//! Library of the `gabion` command. It parses no arguments and prints nothing.

#![forbid(unsafe_code)]

pub mod compute;
pub mod daemon;
pub mod exit;
pub mod exposition;
pub mod live;
pub mod machine;
pub mod privileges;
pub mod report;
pub mod shell;
pub mod size;
