//! The `gabion` program that benches run: the one built beside this program.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the program.
const NAME: &str = "gabion";

/// Builds the program where cargo runs this one, so that a bench never measures an older build; elsewhere the file
/// beside this program is used as it is.
///
/// # Errors
/// It cannot be built, or is not there.
pub(crate) fn build() -> Result<()> {
    let own = std::env::current_exe()?;
    let (directory, profile) = place(&own).context("this program has no directory")?;
    if let Some(cargo) = std::env::var_os("CARGO")
        && let Some(target) = directory.parent()
        && let Some(profile) = profile
    {
        errln!("gabion-bench: building {NAME} with profile {profile}");
        // Both packages, so that their dependencies have the features with which they were built for this program.
        let mut features = "gabion/gpu,gabion/redis,gabion-bench/gpu".to_owned();
        if cfg!(feature = "libraries") {
            features += ",gabion-bench/libraries";
        }
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet", "--package", NAME, "--package", "gabion-bench", "--bin", NAME]);
        command.args(["--profile", profile, "--no-default-features", "--features", &features]);
        // Set by `cargo run` for this package. The build script of ring reads them, so that ring would be built again.
        let described = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(described)) {
            command.env_remove(name);
        }
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        command.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(target);
        ensure!(command.status()?.success(), "{NAME} cannot be built");
    }
    let program = directory.join(NAME);
    let path = program.display();
    ensure!(program.exists(), "no program {path}: build it with `cargo build --release -p {NAME}`");
    Ok(())
}

/// A command that runs the program, to which [`build`] has seen.
///
/// # Errors
/// The directory of this program is unknown.
pub(crate) fn gabion() -> Result<Command> {
    let own = std::env::current_exe()?;
    let (directory, _) = place(&own).context("this program has no directory")?;
    Ok(Command::new(directory.join(NAME)))
}

/// The directory of a program that cargo has built, and the name of its profile.
fn place(program: &Path) -> Option<(PathBuf, Option<&'static str>)> {
    let directory = program.parent()?;
    let profile = match directory.file_name()?.to_str() {
        Some("release") => Some("release"),
        Some("debug") => Some("dev"),
        _ => None,
    };
    Some((directory.to_owned(), profile))
}

#[cfg(test)]
mod tests {
    use super::place;
    use std::path::Path;

    #[test]
    fn the_profile_follows_from_the_directory() {
        let of = |path: &str| place(Path::new(path)).map(|(_, profile)| profile);
        assert_eq!(of("/t/release/gabion-bench"), Some(Some("release")));
        assert_eq!(of("/t/debug/gabion-bench"), Some(Some("dev")));
        assert_eq!(of("/carried/gabion-bench"), Some(None));
    }
}
