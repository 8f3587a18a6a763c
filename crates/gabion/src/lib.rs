//! What the `gabion` command does, as a library: no argument is parsed and nothing printed here.

#![forbid(unsafe_code)]

pub mod compute;
pub mod daemon;
pub mod exit;
pub mod live;
pub mod machine;
pub mod privileges;
pub mod size;
