//! The protector's commands as people and scripts run them.

mod faults;
mod fixture;
mod hostile;
mod json;
mod output;
mod pointer;
mod read_only;
mod readme;
mod rebuild;
mod test_rng;
mod tls;
mod tour;
