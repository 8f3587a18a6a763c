//! What a repository needs and can do without: settings, catalogue and changelog are made anew where they are damaged.

use super::settings::{EMBEDDED, FILE};
use super::{
    CATALOGUE, CHANGELOG, Kind, Location, Lock, Purpose, Settings, Vault, VaultError, at, open_changelog,
    pool_of, take_turn,
};
use crate::catalogue::Catalogue;
use crate::changelog::{self, Change, Changelog, Embedded, When};
use crate::coder::Coders;
use crate::protect::Manner;
use crate::rebuild::{self, Rebuilt};
use crate::redundancy::REDUNDANCY;
use crate::storage::Storage;
use crate::storage::plain::Plain;
use crate::tree::{self, Tree};
use crate::world::{Clock, moment};
use std::io;

/// What was damaged or gone, and is made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The settings: with the changelog that needs no server, unless a pool knows better.
    Settings,
    /// The catalogue.
    Catalogue,
    /// The changelog: what was pending is found by the next look at everything.
    Changelog,
}

impl Vault {
    /// Opens a vault whose settings, catalogue or changelog may be damaged or gone; it is the caller's alone. What is damaged is kept
    /// beside what takes its place. The catalogue is as it was found, or empty.
    ///
    /// # Errors
    /// See [`VaultError`]; settings of a later version are left alone.
    pub fn renew(
        location: &Location,
        command: &str,
        clock: Clock,
    ) -> Result<(Vault, Lock, Vec<Renewed>), VaultError> {
        let path = &location.repository;
        let repository = Tree::open(path).map_err(at(path))?;
        if location.storage == Kind::Plain && repository.find(REDUNDANCY).map_err(at(path))?.is_none() {
            return Err(VaultError::Unprotected { path: path.clone() });
        }
        if let Some(refusal) = repository.refusal_to_write(".").map_err(at(path))? {
            return Err(at(path)(refusal));
        }
        let guard = Lock::take(&repository, command, &clock)?;
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
        if is_odd(&repository, CATALOGUE, tree::Kind::File).map_err(at(path))?
            || has_damaged_catalogue(location)?
        {
            for name in [CATALOGUE, "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
                aside(name)?;
            }
            renewed.push(Renewed::Catalogue);
        }
        let is_own = settings.changelog == EMBEDDED;
        if is_own && (has_odd_changelog(&repository).map_err(at(path))? || has_damaged_changelog(location)?) {
            aside(CHANGELOG)?;
            renewed.push(Renewed::Changelog);
        }
        drop(turn);
        let vault = Vault::open_as_it_is(location, clock, Purpose::Change, open_changelog)?;
        if renewed.contains(&Renewed::Changelog) {
            // Nobody knows any more what was pending.
            vault.changelog.record(&[Change::gap("", When::now(vault.clock.now(), u8::MAX))])?;
        }
        Ok((vault, guard, renewed))
    }
}

/// What a rebuild of the catalogue would find, and whether the settings would be made anew. Nothing is changed.
///
/// # Errors
/// See [`VaultError`] and [`RebuildError`](crate::rebuild::RebuildError).
pub fn survey(location: &Location, clock: &Clock, manner: Manner<'_>) -> Result<(Rebuilt, bool), VaultError> {
    let path = &location.repository;
    let lacks_settings = match Settings::load(path) {
        Err(VaultError::Unprotected { .. } | VaultError::Damaged { .. }) => true,
        settings => settings.map(|_| false)?,
    };
    let storage: Box<dyn Storage> = match pool_of(location, clock)? {
        Some(pool) => Box::new(pool),
        None => {
            let tree = |path| Tree::open(path).map_err(at(path));
            Box::new(Plain::new(tree(&location.root)?, tree(path)?))
        }
    };
    Ok((rebuild::survey(&*storage, &Coders::new()?, manner)?, lacks_settings))
}

fn is_odd(repository: &Tree, name: &str, wanted: tree::Kind) -> io::Result<bool> {
    Ok(repository.find(name.as_bytes())?.is_some_and(|found| found.kind != wanted))
}

fn has_odd_changelog(repository: &Tree) -> io::Result<bool> {
    let file = |name| is_odd(repository, &format!("{CHANGELOG}/{name}"), tree::Kind::File);
    Ok(is_odd(repository, CHANGELOG, tree::Kind::Directory)? || file("log.db")? || file("pending.db")?)
}

fn has_damaged_catalogue(location: &Location) -> Result<bool, VaultError> {
    let opened =
        Catalogue::open(&location.repository.join(CATALOGUE)).and_then(|catalogue| catalogue.check());
    match opened {
        Err(error) if error.is_damage() => Ok(true),
        opened => Ok(opened.map(|()| false)?),
    }
}

fn has_damaged_changelog(location: &Location) -> Result<bool, VaultError> {
    let read = || -> Result<(), changelog::Error> {
        let changelog = Embedded::open(&location.repository.join(CHANGELOG))?;
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

/// Gives what is there another name that says what it is.
fn set_aside(repository: &Tree, name: &str, clock: &Clock) -> io::Result<()> {
    let when = moment(clock.now()).replace([' ', ':'], "-");
    tree::absent_is_none(repository.rename(name.as_bytes(), format!("{name}.damaged-{when}").as_bytes()))?;
    repository.sync_directory(b"")
}
