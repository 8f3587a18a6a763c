//! What files shall get, for the commands that set a vault up.

use gabion::live;
use std::path::PathBuf;

pub(in crate::commands) use gabion::live::directory;

/// What files shall get, and where changes are remembered.
#[derive(clap::Args)]
pub(in crate::commands) struct ProtectionArgs {
    /// What files get, by rules; see `gabion policy check`
    #[arg(long, value_name = "FILE", conflicts_with = "code")]
    policy: Option<PathBuf>,
    /// What all files get: K+M, K data blocks for M redundancy blocks
    #[arg(long, value_name = "K+M")]
    code: Option<String>,
    /// Where changes are remembered, decided at the first run: embedded, redis://HOST:PORT, or rediss://HOST:PORT (TLS)
    #[arg(long, value_name = "ENGINE")]
    changelog: Option<String>,
}

impl ProtectionArgs {
    /// As the library has it.
    pub(in crate::commands) fn to_options(&self) -> live::ProtectOptions {
        let ProtectionArgs { policy, code, changelog } = self;
        live::ProtectOptions { policy: policy.clone(), code: code.clone(), changelog: changelog.clone() }
    }

    /// Whether anything was said.
    pub(in crate::commands) fn is_set(&self) -> bool {
        self.to_options() != live::ProtectOptions::default()
    }
}
