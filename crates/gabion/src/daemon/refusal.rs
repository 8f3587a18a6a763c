//! Reasons why the daemon refuses a request: a code for programs, and a message for people.

use schemars::JsonSchema;
use serde::Serialize;

/// Code of an error, as in `error.code` of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorCode {
    /// The request cannot be parsed, or a parameter is invalid.
    InvalidRequest,
    /// A token is needed.
    Unauthorized,
    /// The user or the token may not do this.
    Forbidden,
    /// The request comes from a page of another origin, or names another host.
    CrossOrigin,
    /// There is no such path, source, file or job.
    NotFound,
    /// The path does not accept this method.
    MethodNotAllowed,
    /// The body was not sent in time.
    Timeout,
    /// The source is paused.
    SourcePaused,
    /// The source does not run.
    SourceNotRunning,
    /// The source is no pool.
    NotAPool,
    /// The digest is not that of the present change-set, plan or question.
    DigestMismatch,
    /// The new configuration cannot be used; nothing was changed.
    ConfigurationRefused,
    /// The body is too long.
    BodyTooLarge,
    /// Too many jobs wait, or too many streams are open.
    TooMany,
    /// The daemon failed to carry it out.
    Internal,
}

impl ErrorCode {
    /// The status of an HTTP answer.
    pub(crate) fn status(self) -> u16 {
        match self {
            ErrorCode::InvalidRequest => 400,
            ErrorCode::Unauthorized => 401,
            ErrorCode::Forbidden | ErrorCode::CrossOrigin => 403,
            ErrorCode::NotFound => 404,
            ErrorCode::MethodNotAllowed => 405,
            ErrorCode::Timeout => 408,
            ErrorCode::SourcePaused
            | ErrorCode::SourceNotRunning
            | ErrorCode::NotAPool
            | ErrorCode::DigestMismatch
            | ErrorCode::ConfigurationRefused => 409,
            ErrorCode::BodyTooLarge => 413,
            ErrorCode::TooMany => 429,
            ErrorCode::Internal => 500,
        }
    }
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(ErrorCode::InvalidRequest, message)
    }

    pub(crate) fn internal(error: impl std::fmt::Display) -> Refusal {
        Refusal::new(ErrorCode::Internal, error.to_string())
    }
}
