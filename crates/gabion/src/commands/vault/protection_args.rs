//! Options of the commands that set up a vault.

use gabion::live;
use std::path::PathBuf;

pub(in crate::commands) use gabion::live::directory;

/// Policy or code of a vault, and its changelog.
#[derive(clap::Args)]
pub(in crate::commands) struct ProtectionArgs {
    /// Policy file with rules per file; see `gabion policy check`
    #[arg(long, value_name = "FILE", conflicts_with = "code")]
    policy: Option<PathBuf>,
    /// Code for all files: K+M, M redundancy blocks for K data blocks
    #[arg(long, value_name = "K+M")]
    code: Option<String>,
    /// Changelog engine, set at the first run: embedded, redis://HOST:PORT, or rediss://HOST:PORT (TLS)
    #[arg(long, value_name = "ENGINE")]
    changelog: Option<String>,
}

impl ProtectionArgs {
    /// The options for the library.
    pub(in crate::commands) fn to_options(&self) -> live::ProtectOptions {
        let ProtectionArgs { policy, code, changelog } = self;
        live::ProtectOptions { policy: policy.clone(), code: code.clone(), changelog: changelog.clone() }
    }

    /// True if any option was given.
    pub(in crate::commands) fn is_set(&self) -> bool {
        self.to_options() != live::ProtectOptions::default()
    }
}
