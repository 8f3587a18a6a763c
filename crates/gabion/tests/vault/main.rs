//! The commands on vaults as processes.

mod answers;
mod check;
mod corruption;
mod devices;
mod documents;
mod duplicates;
mod exclude;
mod faults;
mod fixture;
mod forget;
mod held;
mod hostile;
mod json;
mod output;
mod pointer;
mod projects;
mod read_only;
mod readme;
mod rebuild;
mod replaced;
mod selected;
mod test_rng;
mod tls;
mod tour;
mod users;
