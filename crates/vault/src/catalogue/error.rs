//! Errors of the catalogue.

use rusqlite::ErrorCode;

/// Error of the catalogue itself; `gabion catalogue rebuild` creates it again.
#[derive(Debug, thiserror::Error)]
#[error("the catalogue {path}: {reason}{}", self.advice())]
pub struct CatalogueError {
    pub(super) path: String,
    /// Not named `source`, because the message contains it already.
    pub(super) reason: Reason,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Reason {
    #[error("{0}")]
    Database(rusqlite::Error),
    /// The file has no header that SQLite can read.
    #[error("{0}")]
    Header(rusqlite::Error),
    #[error("{0}")]
    Journal(crate::changelog::Error),
    #[error("the journal of the changelog's server has a record that this program does not understand")]
    Record,
    #[error("the server of the changelog lost the journal, which has to be made again from headers")]
    NotMade,
}

impl CatalogueError {
    /// True if the file is not a database or is damaged.
    pub fn is_damage(&self) -> bool {
        match &self.reason {
            Reason::Header(_) => true,
            Reason::Database(reason) => {
                let code = reason.sqlite_error_code();
                matches!(code, Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
            }
            Reason::Journal(_) | Reason::Record | Reason::NotMade => false,
        }
    }

    /// The changelog's error if that is what failed.
    pub(crate) fn into_journal_error(self) -> std::result::Result<crate::changelog::Error, CatalogueError> {
        match self.reason {
            Reason::Journal(error) => Ok(error),
            reason => Err(CatalogueError { reason, ..self }),
        }
    }

    fn advice(&self) -> &'static str {
        if self.is_damage() { "; `gabion catalogue rebuild` rebuilds it" } else { "" }
    }
}
