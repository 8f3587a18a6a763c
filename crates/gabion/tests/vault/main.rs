//! The protector's commands as people and scripts run them.

mod devices;
mod faults;
mod hostile;
mod output;
mod playground;
mod pointer;
mod read_only;
mod readme;
mod rebuild;
mod seed;
mod talk;
mod tls;
mod tour;
