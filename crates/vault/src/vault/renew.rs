//! Renewal of a damaged repository: settings, catalogue and changelog are created again where they are damaged or
//! missing.

use super::settings::{EMBEDDED, FILE};
use super::{
    CATALOGUE, CHANGELOG, Kind, Location, Lock, LockError, Purpose, Settings, Vault, VaultError, at, copies,
    open_changelog, pool_of, take_turn,
};
use crate::catalogue::{self, Catalogue};
use crate::catalogue_rebuild::{self, Rebuilt};
use crate::changelog::database;
use crate::changelog::{self, Change, Changelog, Embedded, When};
use crate::coder::Coders;
use crate::redundancy::REDUNDANCY;
use crate::run::RunContext;
use crate::storage::Storage;
use crate::storage::plain::Plain;
use crate::tree::{self, Tree};
use crate::world::{Clock, moment};
use std::io;

/// A part of the repository that was damaged or missing and was created again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The settings: with the embedded changelog, unless the pool has its own copy.
    Settings,
    /// The catalogue.
    Catalogue,
    /// The changelog: the next full scan finds what was pending.
    Changelog,
}

/// A vault with a rebuilt catalogue.
pub struct Renewal {
    /// The open vault.
    pub vault: Vault,
    /// Results of the rebuild.
    pub rebuilt: Rebuilt,
    /// Parts that were damaged or missing.
    pub renewed: Vec<Renewed>,
    /// Locks against other commands, watches and mounts.
    _locks: [Lock; 2],
}

impl Vault {
    /// Rebuilds the catalogue from the headers of redundancy files, and replaces damaged or missing settings and
    /// changelog.
    ///
    /// The catalogue is always built as a new file and renamed into place: with a damaged index some old rows could not
    /// be removed, and a file that SQLite refuses to open cannot be changed at all. Old files are kept as
    /// `NAME.damaged-TIME`.
    ///
    /// # Errors
    /// See [`VaultError`]; settings of a newer version are not changed.
    pub fn renew(
        location: &Location,
        command: &str,
        clock: Clock,
        context: RunContext<'_>,
    ) -> Result<Renewal, VaultError> {
        let path = &location.repository;
        let repository = Tree::open_owned(path).map_err(at(path))?;
        if location.storage == Kind::Plain && repository.find(REDUNDANCY).map_err(at(path))?.is_none() {
            return Err(VaultError::Unprotected { path: path.clone() });
        }
        if let Some(refusal) = repository.refusal_to_write(".").map_err(at(path))? {
            return Err(at(path)(refusal));
        }
        let guard = Lock::take(&repository, command, &clock)?;
        // A running watch or mount would continue with the old file.
        let no_watch = Lock::take_to_watch(&repository, command, &clock).map_err(|error| match error {
            LockError::Watched { holder } => VaultError::CatalogueInUse { holder },
            error => error.into(),
        })?;
        let mut renewed = Vec::new();
        let aside = |name: &str| set_aside(&repository, name, &clock).map_err(at(path));
        let turn = take_turn(path)?;
        let settings = match Settings::load(path) {
            Err(VaultError::Unprotected { .. } | VaultError::Damaged { .. }) => {
                let settings = Settings::new(location, None, pool_of(location, &clock)?.as_ref())?;
                aside(FILE)?;
                settings.save(path)?;
                renewed.push(Renewed::Settings);
                settings
            }
            settings => settings?,
        };
        let databases =
            if settings.is_shared() { copies::directory(&settings, location)? } else { repository.clone() };
        let is_damaged = is_odd(&databases, CATALOGUE, tree::Kind::File).map_err(at(databases.path()))?
            || catalogue::is_damaged(&databases.path().join(CATALOGUE));
        if is_damaged {
            renewed.push(Renewed::Catalogue);
        }
        let is_own = settings.changelog == EMBEDDED;
        if is_own && (has_odd_changelog(&repository).map_err(at(path))? || has_damaged_changelog(location)?) {
            aside(CHANGELOG)?;
            renewed.push(Renewed::Changelog);
        }
        // Reading all headers takes long: others may open the vault meanwhile.
        drop(turn);
        if settings.is_shared() {
            return Vault::renew_copies(location, clock, context, &databases, renewed, [guard, no_watch]);
        }
        for name in [DRAFT, "catalogue.sqlite.draft-wal", "catalogue.sqlite.draft-shm"] {
            repository.remove(name.as_bytes()).map_err(at(path))?;
        }
        let draft = Catalogue::open(&path.join(DRAFT))?;
        let rebuilt =
            catalogue_rebuild::rebuild(&draft, &*storage_of(location, &clock)?, &Coders::new()?, context)?;
        draft.close()?;
        let turn = take_turn(path)?;
        for name in [CATALOGUE, "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
            aside(name)?;
        }
        repository.rename(DRAFT.as_bytes(), CATALOGUE.as_bytes()).map_err(at(path))?;
        repository.sync_directory(b"").map_err(at(path))?;
        drop(turn);
        let vault = Vault::open_as_it_is(location, clock, Purpose::Change, open_changelog)?;
        if renewed.contains(&Renewed::Settings) {
            // The vault has a new identity. A read-only tree cannot have a pointer.
            let _ = vault.leave_pointer();
        }
        if renewed.contains(&Renewed::Changelog) {
            // The pending changes are unknown.
            vault.changelog.record(&[Change::gap("", When::now(vault.clock.now(), u8::MAX))])?;
        }
        Ok(Renewal { vault, rebuilt, renewed, _locks: [guard, no_watch] })
    }
}

impl Vault {
    /// Rebuilds the catalogue of all hosts, with a new copy on this one.
    fn renew_copies(
        location: &Location,
        clock: Clock,
        context: RunContext<'_>,
        databases: &Tree,
        renewed: Vec<Renewed>,
        locks: [Lock; 2],
    ) -> Result<Renewal, VaultError> {
        if renewed.contains(&Renewed::Catalogue) {
            for name in [CATALOGUE, "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
                set_aside(databases, name, &clock).map_err(at(databases.path()))?;
            }
        }
        let vault = Vault::open_as_it_is(location, clock, Purpose::Change, open_changelog)?;
        vault.catalogue.catch_up()?;
        let rebuilt = catalogue_rebuild::rebuild(&vault.catalogue, &*vault.storage, &vault.coders, context)?;
        Ok(Renewal { vault, rebuilt, renewed, _locks: locks })
    }
}

/// Name of a catalogue that is being built.
const DRAFT: &str = "catalogue.sqlite.draft";

fn storage_of(location: &Location, clock: &Clock) -> Result<Box<dyn Storage>, VaultError> {
    Ok(match pool_of(location, clock)? {
        Some(pool) => Box::new(pool),
        None => {
            let Location { root, repository, .. } = location;
            let tree = Tree::open(root).map_err(at(root))?;
            Box::new(Plain::new(tree, Tree::open_owned(repository).map_err(at(repository))?))
        }
    })
}

/// Results that a rebuild of the catalogue would have, and whether the settings would be created again. Changes
/// nothing.
///
/// # Errors
/// See [`VaultError`] and [`RebuildError`](crate::catalogue_rebuild::RebuildError).
pub fn survey(
    location: &Location,
    clock: &Clock,
    context: RunContext<'_>,
) -> Result<(Rebuilt, bool), VaultError> {
    let path = &location.repository;
    let lacks_settings = match Settings::load(path) {
        Err(VaultError::Unprotected { .. } | VaultError::Damaged { .. }) => true,
        settings => settings.map(|_| false)?,
    };
    let storage = storage_of(location, clock)?;
    Ok((catalogue_rebuild::survey(&*storage, &Coders::new()?, context)?, lacks_settings))
}

fn is_odd(repository: &Tree, name: &str, wanted: tree::Kind) -> io::Result<bool> {
    Ok(repository.find(name.as_bytes())?.is_some_and(|found| found.kind != wanted))
}

fn has_odd_changelog(repository: &Tree) -> io::Result<bool> {
    let file = |name| is_odd(repository, &format!("{CHANGELOG}/{name}"), tree::Kind::File);
    Ok(is_odd(repository, CHANGELOG, tree::Kind::Directory)? || file("log.db")? || file("pending.db")?)
}

fn has_damaged_changelog(location: &Location) -> Result<bool, VaultError> {
    let directory = location.repository.join(CHANGELOG);
    if ["log.db", "pending.db"].iter().any(|name| database::has_damaged_header(&directory.join(name))) {
        return Ok(true);
    }
    let read = || -> Result<(), changelog::Error> {
        let changelog = Embedded::open(&directory)?;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = changelog.entries(after.as_deref(), changelog::MAX_PAGE)?;
            match page.last() {
                Some(last) => after = Some(last.path.clone()),
                None => return Ok(()),
            }
        }
    };
    match read() {
        Err(error) if error.is_damage() => Ok(true),
        read => Ok(read.map(|()| false)?),
    }
}

/// Renames an old file to `NAME.damaged-TIME`.
fn set_aside(repository: &Tree, name: &str, clock: &Clock) -> io::Result<()> {
    let when = moment(clock.now()).replace([' ', ':'], "-");
    tree::absent_is_none(repository.rename(name.as_bytes(), format!("{name}.damaged-{when}").as_bytes()))?;
    repository.sync_directory(b"")
}
