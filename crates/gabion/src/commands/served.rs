//! Commands whose vault a daemon has at work: the daemon is asked to do it.

use super::daemon::report;
use super::vault::{OutputArgs, lock};
use gabion::daemon::client::{self, Client};
use gabion::daemon::note::Note;
use gabion::daemon::protocol::Request;
use gabion::exit::Outcome;
use gabion_vault::vault::{Lock, LockError, Vault};

/// The daemon that sees to a vault, if one does.
pub(super) fn by(vault: &Vault) -> Option<(Client, Note)> {
    client::find(vault.repository.path())
}

/// Who does it.
pub(super) enum Turn {
    /// We do, and the vault is ours.
    Ours(Lock),
    /// The daemon did it.
    Theirs(Outcome),
}

/// Takes the vault for a command. If a daemon has it, the daemon is asked to do the same: `request` says how, for the name that
/// the source has there, and is nothing if it cannot be said.
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
            "the vault is in use by {holder}, and the daemon cannot do this with these options: wait for it with --wait, or \
             stop its work with `gabion daemon pause {source}` and let it go on with `gabion daemon resume {source}`"
        );
    };
    if !output.json && !output.quiet {
        errln!("gabion: the vault is in use by {holder}: the daemon is asked to do it");
    }
    let done = client.ask(&request, &mut |_| {})?;
    Ok(Turn::Theirs(report::print(command, &done, output.json, output.quiet)))
}
