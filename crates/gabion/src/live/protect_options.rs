//! Options that set up a vault: policy or code, and changelog.

use super::{LiveError, at};
use gabion_engine::Code;
use gabion_vault::display_path::DisplayPath;
use gabion_vault::policy::{Policy, usable};
use gabion_vault::private::read_text;
use gabion_vault::vault::{DEFAULT_CODE, Location, Vault, VaultError, parse_policy};
use gabion_vault::world::Clock;
use std::path::{Path, PathBuf};

/// Policy or code of a vault, and its changelog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtectOptions {
    /// Policy file.
    pub policy: Option<PathBuf>,
    /// Code for all files, as `K+M`.
    pub code: Option<String>,
    /// Changelog engine.
    pub changelog: Option<String>,
}

/// Checks that a path is a directory and not part of a repository.
///
/// # Errors
/// [`LiveError`].
pub fn directory(path: &Path) -> Result<(), LiveError> {
    if !std::fs::metadata(path).map_err(at(path))?.is_dir() {
        return Err(LiveError::NoDirectory { path: path.to_owned() });
    }
    let real = std::fs::canonicalize(path).map_err(at(path))?;
    let is_repository = |above: &Path| {
        let has_redundancy = ["redundancy", "parity"].iter().any(|top| above.join(top).is_dir());
        above.join("vault.toml").is_file() && has_redundancy
    };
    match real.ancestors().any(is_repository) {
        true => Err(LiveError::Repository { path: path.to_owned() }),
        false => Ok(()),
    }
}

impl ProtectOptions {
    /// Opens or creates the vault. A new vault leaves a pointer in its tree; `warn` receives a message if that fails.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn open(
        &self,
        location: &Location,
        policy: Option<&str>,
        warn: &dyn Fn(&str),
    ) -> Result<Vault, LiveError> {
        let is_new = matches!(Vault::open(location, Clock::System), Err(VaultError::Unprotected { .. }));
        if is_new {
            // Checked first, so that an unusable policy leaves no empty vault behind.
            let code: Code = DEFAULT_CODE.parse().map_err(VaultError::from)?;
            let policy = match policy {
                Some(text) => self.check_policy(text, &code)?,
                None => Policy::only(code),
            };
            location.refuse_nested(&policy, Clock::System.now())?;
        }
        let vault = Vault::create(location, self.changelog.as_deref(), Clock::System)?;
        // Only for a new vault, not in every run.
        if let (Err(error), true) = (vault.leave_pointer(), is_new) {
            warn(&format!(
                "{}: cannot write the pointer to its repository: {error}. Later commands need --repository {}",
                DisplayPath::path(&vault.root),
                DisplayPath::path(vault.repository.path())
            ));
        }
        Ok(vault)
    }

    /// Opens or creates the vault, and sets its policy.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn set_up(&self, location: &Location, warn: &dyn Fn(&str)) -> Result<Vault, LiveError> {
        let policy = self.policy_text()?;
        let mut vault = self.open(location, policy.as_deref(), warn)?;
        if let Some(text) = &policy {
            vault.set_policy(text)?;
        }
        Ok(vault)
    }

    /// The policy as text, if one is set.
    ///
    /// # Errors
    /// The file cannot be read, or the code is invalid.
    pub fn policy_text(&self) -> Result<Option<String>, LiveError> {
        if let Some(path) = &self.policy {
            return std::fs::File::open(path).and_then(read_text).map(Some).map_err(at(path));
        }
        let Some(code) = &self.code else { return Ok(None) };
        let parsed: Code = code.parse().map_err(|source| LiveError::Code { code: code.clone(), source })?;
        Ok(Some(format!("[default]\ncode = \"{}\"\n", usable(parsed)?)))
    }

    /// Parses a policy; errors name the file.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn check_policy(&self, text: &str, code: &Code) -> Result<Policy, LiveError> {
        let path = self.policy.clone().unwrap_or_else(|| PathBuf::from("--code"));
        Ok(parse_policy(text, &path, code)?)
    }
}
