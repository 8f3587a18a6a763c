//! Reports of notifications.

use super::Time;
use schemars::JsonSchema;
use serde::Serialize;

/// A receiver of notifications, as in `daemon status`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReceiverReport {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) state: &'static str,
    pub(crate) open: usize,
    pub(crate) untold: usize,
    pub(crate) waiting_since: Option<Time>,
    pub(crate) attempts: u32,
    pub(crate) retry_at: Option<Time>,
    pub(crate) error: Option<String>,
    pub(crate) delivered: Option<Time>,
    pub(crate) discarded: u64,
}

/// Result of a test of a receiver.
#[derive(Debug, Clone, Serialize)]
pub struct DeliveryReport {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub kind: &'static str,
    /// The message arrived, or was taken over by a server or command.
    pub delivered: bool,
    /// The reason why not.
    pub error: Option<String>,
    /// Time that it took.
    pub seconds: f64,
}

/// Results of tests of receivers.
#[derive(Debug, Clone, Serialize)]
pub struct TestReport {
    /// One for each receiver.
    pub receivers: Vec<DeliveryReport>,
}
