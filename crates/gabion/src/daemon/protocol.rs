//! Protocol of the daemon's socket: one JSON object per line, a request and then its answers.
//!
//! A request has `version`, `request` and its parameters. Answers have `version` and one of `progress` (more follow),
//! `result` or `error` (the last one). `docs/operating/daemon.md` lists the requests.

use crate::report;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Protocol version. Requests with another one are refused.
pub const VERSION: u64 = 1;

/// Most bytes of a request, its line end included.
pub const MAX_REQUEST: usize = 16 << 10;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Status of the daemon, or of one source.
    Status {
        /// Name of the source.
        #[serde(default)]
        source: Option<String>,
    },
    /// Nothing is scanned, encoded or scrubbed until `resume`; changes are recorded.
    Pause {
        /// Name of the source; all by default.
        #[serde(default)]
        source: Option<String>,
    },
    /// Goes on after `pause`.
    Resume {
        /// Name of the source; all by default.
        #[serde(default)]
        source: Option<String>,
    },
    /// Approves a held change-set.
    Approve {
        /// Name of the source.
        source: String,
        /// Digest of the change-set.
        digest: String,
    },
    /// Scrubs now.
    Scrub {
        /// Name of the source.
        source: String,
        /// Only this percentage of the files, the longest unscrubbed first.
        #[serde(default)]
        percent: Option<u8>,
        /// Only files last scrubbed more than this many seconds ago.
        #[serde(default)]
        older_than: Option<u64>,
        /// Only files whose last complete verification is older than their policy's interval.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        due: bool,
        /// Start over, even if the last scrub was interrupted.
        #[serde(default)]
        restart: bool,
        /// Repair damaged files at once.
        #[serde(default)]
        repair: bool,
        /// Answer when the job has ended.
        #[serde(default)]
        wait: bool,
    },
    /// Repairs now.
    Repair {
        /// Name of the source.
        source: String,
        /// Only files that a scrub found damaged.
        #[serde(default)]
        known: bool,
        /// Skip files that were written since they were protected.
        #[serde(default)]
        keep_changed: bool,
        /// Also restore missing files.
        #[serde(default)]
        missing: bool,
        /// Answer when the job has ended.
        #[serde(default)]
        wait: bool,
    },
    /// Protects changed files now, without waiting for their quiet period.
    Protect {
        /// Name of the source.
        source: String,
        /// Answer when the job has ended.
        #[serde(default)]
        wait: bool,
    },
    /// Rebuilds now.
    Rebuild {
        /// Name of the source.
        source: String,
        /// Only these targets.
        #[serde(default)]
        targets: Vec<String>,
        /// Confirmation that targets are lost.
        #[serde(default)]
        agree: Option<String>,
        /// Answer when the job has ended.
        #[serde(default)]
        wait: bool,
    },
    /// Reloads the configuration.
    Reload {},
    /// Stops the daemon.
    Stop {},
}

/// Error of a malformed request.
#[derive(Debug, thiserror::Error)]
pub enum BadRequest {
    /// It is too long.
    #[error("a request has at most {MAX_REQUEST} bytes")]
    TooLong,
    /// It is not a JSON object.
    #[error("a request is a JSON object in one line: {0}")]
    Json(String),
    /// Its version is missing or unknown.
    #[error("protocol version {0} is not supported (supported: version {VERSION})")]
    Version(String),
    /// Unknown request or parameter.
    #[error("{0}")]
    Unknown(String),
}

impl Request {
    /// Parses a line.
    ///
    /// # Errors
    /// See [`BadRequest`].
    pub fn parse(line: &[u8]) -> Result<Request, BadRequest> {
        if line.len() > MAX_REQUEST {
            return Err(BadRequest::TooLong);
        }
        let object: Map<String, Value> =
            serde_json::from_slice(line).map_err(|error| BadRequest::Json(error.to_string()))?;
        let mut object = object;
        let version = object.remove("version").unwrap_or(Value::Null);
        if version.as_u64() != Some(VERSION) {
            return Err(BadRequest::Version(version.to_string()));
        }
        serde_json::from_value(Value::Object(object)).map_err(|error| BadRequest::Unknown(error.to_string()))
    }

    /// As a line with its line feed.
    pub fn line(&self) -> String {
        Message { version: VERSION, content: self }.line()
    }
}

/// A request or an answer with the protocol version.
#[derive(Serialize, Deserialize)]
struct Message<C> {
    version: u64,
    #[serde(flatten)]
    content: C,
}

impl<C: Serialize> Message<C> {
    fn line(&self) -> String {
        report::line(self) + "\n"
    }
}

/// An answer. The daemon sends reports; a client receives any value, since the daemon may be of another version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer<R = Value> {
    /// Progress; more answers follow.
    Progress(R),
    /// The request succeeded.
    Result(R),
    /// The request failed.
    Error(String),
}

impl<R: Serialize> Answer<R> {
    /// As a line with its line feed.
    pub fn line(&self) -> String {
        Message { version: VERSION, content: self }.line()
    }
}

impl Answer {
    /// Parses a line.
    pub fn parse(line: &str) -> Option<Answer> {
        let message: Message<Answer> = serde_json::from_str(line).ok()?;
        (message.version == VERSION).then_some(message.content)
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, BadRequest, MAX_REQUEST, Request};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
    use serde_json::json;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let scrub = Request::Scrub {
            source: "photos".to_owned(),
            percent: Some(5),
            older_than: None,
            due: false,
            restart: false,
            repair: true,
            wait: true,
        };
        let rebuild = Request::Rebuild {
            source: "tank".to_owned(),
            targets: vec!["d3".to_owned()],
            agree: None,
            wait: false,
        };
        for request in
            [Request::Status { source: None }, Request::Stop {}, Request::Reload {}, scrub, rebuild]
        {
            assert_eq!(Request::parse(request.line().as_bytes()).unwrap(), request);
        }
        let short = br#"{"version":1,"request":"scrub","source":"photos"}"#;
        assert!(matches!(Request::parse(short).unwrap(), Request::Scrub { wait: false, .. }));
    }

    #[test]
    fn malformed_requests_are_refused_with_a_reason() {
        let refused = |line: &[u8]| Request::parse(line).unwrap_err().to_string();
        assert!(refused(br#"{"request":"status"}"#).contains("version null"));
        assert!(refused(br#"{"version":2,"request":"status"}"#).contains("version 2"));
        assert!(refused(br#"{"version":1,"request":"dance"}"#).contains("dance"));
        assert!(refused(br#"{"version":1,"request":"stop","now":true}"#).contains("now"));
        assert!(refused(br#"{"version":1,"request":"scrub"}"#).contains("source"));
        assert!(refused(b"[1]").contains("one line"));
        let deep = "[".repeat(10_000);
        assert!(matches!(Request::parse(deep.as_bytes()), Err(BadRequest::Json(_))));
        assert!(matches!(Request::parse(&vec![b' '; MAX_REQUEST + 1]), Err(BadRequest::TooLong)));
    }

    #[test]
    fn answers_are_read_as_they_are_written() {
        let all =
            [Answer::Progress(json!({ "files": 3 })), Answer::Result(json!([1])), Answer::Error("no".into())];
        for answer in all {
            assert_eq!(Answer::parse(&answer.line()), Some(answer));
        }
        assert_eq!(Answer::parse("{}"), None);
    }

    proptest! {
        /// Any bytes are refused or parsed, and a parsed request survives a round trip.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(request) = Request::parse(&bytes) {
                prop_assert_eq!(Request::parse(request.line().as_bytes()).unwrap(), request);
            }
        }

        #[test]
        fn any_values_are_read_or_refused(key in "[a-z_]{0,12}", text in ".{0,40}", number in any::<i64>()) {
            let kinds = ["status", "scrub", "repair", "rebuild", "approve", "stop", "protect"];
            for kind in kinds {
                let line = json!({ "version": 1, "request": kind, "source": text, "digest": text, key.as_str(): number });
                if let Ok(request) = Request::parse(line.to_string().as_bytes()) {
                    prop_assert!(!request.line()[..request.line().len() - 1].contains('\n'));
                }
            }
        }
    }
}
