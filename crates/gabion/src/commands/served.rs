//! Delegation to the daemon: commands on a vault that a daemon has locked are sent to it.

use super::daemon::report;
use super::vault::lock;
use crate::output::OutputArgs;
use gabion::daemon::client::{self, Client, Request};
use gabion::daemon::note::Note;
use gabion::exit::Outcome;
use gabion_vault::vault::{Lock, LockError, Vault};

/// The daemon that serves a vault, if one does.
pub(super) fn by(vault: &Vault) -> Option<(Client, Note)> {
    client::find(vault.repository.path())
}

/// Result of [`turn`].
pub(super) enum Turn {
    /// The vault is locked by this process.
    Ours(Lock),
    /// The daemon carried out the command.
    Theirs(Outcome),
}

/// Locks the vault for a command. If a daemon has locked it, sends the command to the daemon: `request` makes the
/// request from the name of the source there, or `None` if the daemon does not support the options.
pub(super) fn turn(
    vault: &Vault,
    command: &str,
    wait: bool,
    output: &OutputArgs,
    request: impl FnOnce(String) -> Option<Request>,
) -> anyhow::Result<Turn> {
    let holder = match vault.lock(command) {
        Ok(ours) => return Ok(Turn::Ours(ours)),
        Err(LockError::Held { holder }) if !wait => holder,
        Err(_) => return lock(vault, command, wait, output).map(Turn::Ours),
    };
    let Some((mut client, note)) = by(vault) else {
        return lock(vault, command, wait, output).map(Turn::Ours);
    };
    let source = note.source;
    let Some(request) = request(source.clone()) else {
        anyhow::bail!(
            "the vault is in use by {holder}, and the daemon does not support these options: wait with --wait, or pause \
            the daemon's work with `gabion daemon pause {source}` and continue it later with `gabion daemon resume {source}`"
        );
    };
    if !output.json && !output.quiet {
        errln!("gabion: the vault is in use by {holder}: sending the command to the daemon");
    }
    let done = client.ask(&request)?;
    Ok(Turn::Theirs(report::print(command, &request, &done, output.json, output.quiet)))
}
