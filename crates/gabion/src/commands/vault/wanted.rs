//! What files shall get, for the commands that set a vault up.

use anyhow::Context;
use gabion::shard::Shown;
use gabion_engine::Code;
use gabion_vault::vault::{DEFAULT_CODE, Location, Vault, VaultError};
use gabion_vault::world::Clock;
use std::path::{Path, PathBuf};

/// What files shall get, and where changes are remembered.
#[derive(clap::Args)]
pub(in crate::commands) struct Wanted {
    /// What files get, by rules; see `gabion policy check`
    #[arg(long, value_name = "FILE", conflicts_with = "code")]
    policy: Option<PathBuf>,
    /// What all files get: K+M, K data blocks for M redundancy blocks
    #[arg(long, value_name = "K+M")]
    code: Option<String>,
    /// Where changes are remembered, decided at the first run: embedded, or redis://HOST:PORT
    #[arg(long, value_name = "ENGINE")]
    changelog: Option<String>,
}

/// What is no directory cannot be protected.
pub(in crate::commands) fn directory(path: &Path) -> anyhow::Result<()> {
    let metadata = std::fs::metadata(path).with_context(|| path.display().to_string())?;
    anyhow::ensure!(metadata.is_dir(), "{} is not a directory", Shown::path(path));
    Ok(())
}

impl Wanted {
    /// Opens the vault, or makes one.
    pub(in crate::commands) fn open(
        &self,
        location: &Location,
        policy: Option<&str>,
    ) -> anyhow::Result<Vault> {
        if let Err(VaultError::Unprotected { .. }) = Vault::open(location, Clock::System) {
            // A policy that cannot be used must not leave an empty vault behind.
            policy.map(|text| self.check_policy(text, &DEFAULT_CODE.parse()?)).transpose()?;
        }
        Ok(Vault::create(location, self.changelog.as_deref(), Clock::System)?)
    }

    pub(in crate::commands) fn policy_text(&self) -> anyhow::Result<Option<String>> {
        if let Some(path) = &self.policy {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            return Ok(Some(text));
        }
        let Some(code) = &self.code else { return Ok(None) };
        let parsed: Code = code.parse().with_context(|| format!("--code {code}"))?;
        Ok(Some(format!("[default]\ncode = \"{parsed}\"\n")))
    }

    pub(in crate::commands) fn check_policy(
        &self,
        text: &str,
        code: &Code,
    ) -> anyhow::Result<gabion_vault::policy::Policy> {
        let path = self.policy.clone().unwrap_or_else(|| PathBuf::from("--code"));
        Ok(gabion_vault::vault::parse_policy(text, &path, code)?)
    }
}
