//! A directory or a pool, mounted, with what protects it.

use super::{Access, LiveError, ProtectOptions, at, directory};
use gabion_mount::{
    Directory, MountError, Mounted, Options, Outage, Privileges, Recorder, VerifiedReads, clear_dead_mount,
    mount,
};
use gabion_platform::open_files;
use gabion_platform::sync;
use gabion_vault::catalogue::Catalogue;
use gabion_vault::coder::Coders;
use gabion_vault::degraded::{self, Report};
use gabion_vault::monitor::{self, Live, Tell};
use gabion_vault::shown::Shown;
use gabion_vault::storage::Storage;
use gabion_vault::storage::TargetState;
use gabion_vault::storage::plain::Plain;
use gabion_vault::storage::pool::Pool;
use gabion_vault::tree::{Generation, Tree};
use gabion_vault::vault::{Location, OWN, Vault, VaultError};
use gabion_vault::world::Clock;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is shown.
#[derive(Debug, Clone)]
pub enum Source {
    /// A directory, with its repository where that is not within.
    Directory(PathBuf, Option<PathBuf>),
    /// A pool, with what people call it.
    Pool(Pool, PathBuf),
}

/// How to mount a source.
#[derive(Debug, Clone)]
pub struct MountPlan {
    /// What.
    pub source: Source,
    /// Where.
    pub mountpoint: PathBuf,
    /// What files get.
    pub protection: ProtectOptions,
    /// How to protect; with no threads, others have to.
    pub keeping: monitor::Options,
    /// Threads that serve programs.
    pub threads: usize,
    /// Who may use it.
    pub access: Access,
    /// Nothing can be changed through it.
    pub read_only: bool,
    /// Setuid bits and capabilities of programs count, if they do in the source.
    pub suid: bool,
    /// Device nodes can be opened, if they can in the source.
    pub dev: bool,
    /// Whether files that are only read are checked.
    pub verify: bool,
    /// Whether the kernel reads files of a directory by itself that are not checked.
    pub passthrough: bool,
    /// What happens while the changelog does not answer.
    pub outage: Outage,
}

/// A source that is mounted and protected.
pub struct MountedSource {
    mounted: Mounted,
    recorder: Arc<Recorder>,
    /// Until protection begins.
    vault: Option<Vault>,
    keeping: monitor::Options,
    live: Option<Live>,
    mountpoint: PathBuf,
    location: Location,
}

/// Said of what people should know of, in words.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

impl MountPlan {
    /// Mounts the source. What happens is recorded from now on; protection begins with [`MountedSource::keep`].
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn start(self, say: Say) -> Result<MountedSource, LiveError> {
        if clear_dead_mount(&self.mountpoint).map_err(at(&self.mountpoint))? {
            say("what a process that died left mounted there is cleared away");
        }
        let mountpoint = std::fs::canonicalize(&self.mountpoint).map_err(at(&self.mountpoint))?;
        directory(&mountpoint)?;
        // Every file that a program has open is open here as well.
        open_files::allow(open_files::MOST);
        let (name, mut vault, location) = self.open(&mountpoint, &say)?;
        let repository = vault.repository.path().to_owned();
        let (changelog, rules) = (Arc::clone(&vault.changelog), vault.read_policy()?);
        let recorder = Recorder::start(changelog, rules, Clock::System, self.outage, &repository);
        let recorder = Arc::new(recorder.map_err(at(&repository))?);
        let options = Options {
            name: name.display().to_string(),
            threads: self.threads,
            allow_other: self.access.allows_others(&say),
            read_only: self.read_only,
            privileges: self.privileges(&name, &say),
        };
        let mounted = match &self.source {
            Source::Pool(pool, _) => {
                let (coders, theirs) = (Coders::new()?, Arc::clone(&recorder));
                let verified = if self.verify { Some(verified(&location, say)?) } else { None };
                let files = gabion_mount::Pool::new(pool.clone(), coders, Clock::System, theirs, verified);
                // Whoever makes redundancy then knows what was written, and what is damage.
                vault.storage = Box::new(pool.clone());
                mount(files.map_err(at(&name))?, &mountpoint, &options)?
            }
            Source::Directory(..) => {
                let hidden = hidden_name(&name, &repository);
                let verified = if self.verify { Some(verified(&location, say)?) } else { None };
                let files = Directory::new(&name, hidden, Arc::clone(&recorder), verified, self.passthrough);
                let files = files.map_err(at(&name))?;
                // Whoever makes redundancy then knows what was written, and what is damage.
                let root = Tree::open(&name).map_err(at(&name))?;
                let storage = Plain::new(root, vault.repository.clone());
                files.set_writer_of(&storage);
                vault.storage = Box::new(storage);
                mount(files, &mountpoint, &options)?
            }
        };
        let (vault, live) = (Some(vault), None);
        Ok(MountedSource { mounted, recorder, vault, keeping: self.keeping, live, mountpoint, location })
    }

    /// What was asked for, as far as the source allows it.
    fn privileges(&self, name: &Path, say: &Say) -> Privileges {
        let allowed = match &self.source {
            Source::Pool(pool, _) => Privileges::of(&pool.paths()),
            Source::Directory(..) => Privileges::of(&[name.to_owned()]),
        };
        for (requested, allowed, option, flag) in
            [(self.suid, allowed.suid, "--suid", "nosuid"), (self.dev, allowed.dev, "--dev", "nodev")]
        {
            if requested && !allowed {
                say(&format!("the source is mounted {flag}, so this mount is as well, despite {option}"));
            }
        }
        Privileges { suid: self.suid && allowed.suid, dev: self.dev && allowed.dev, exec: allowed.exec }
    }

    /// The source's own path, its vault, and where that is.
    fn open(&self, mountpoint: &Path, say: &Say) -> Result<(PathBuf, Vault, Location), LiveError> {
        match &self.source {
            Source::Pool(pool, name) => {
                for target in pool.paths() {
                    refuse_overlap(&std::fs::canonicalize(&target).unwrap_or(target), mountpoint)?;
                }
                refuse_full(mountpoint)?;
                let (vault, location) = pool_vault(pool, &self.protection, say)?;
                Ok((name.clone(), vault, location))
            }
            Source::Directory(path, repository) => {
                directory(path)?;
                let source = std::fs::canonicalize(path).map_err(at(path))?;
                refuse_overlap(&source, mountpoint)?;
                refuse_full(mountpoint)?;
                let location = Location::to_protect(&source, repository.as_deref())?;
                // It would be hidden, and what is asked of it would come back to us.
                refuse_overlap(&real(&location.repository), mountpoint)?;
                Ok((source, self.protection.set_up(&location, &**say)?, location))
            }
        }
    }
}

/// The vault of a pool. If it went with its target, another one is begun with what headers tell.
fn pool_vault(pool: &Pool, protection: &ProtectOptions, say: &Say) -> Result<(Vault, Location), LiveError> {
    let location = Location::of_pool(pool)?;
    let exists = location.repository.join("vault.toml").exists();
    let all_answer = pool.targets().iter().all(|target| target.state != TargetState::Offline);
    if !exists && !all_answer && Vault::of_pool(pool, Clock::System)?.1 {
        say(
            "the target with the pool's vault does not answer: another vault is begun, its catalogue made from headers",
        );
    }
    Ok((protection.set_up(&location, &**say)?, location))
}

impl MountedSource {
    /// Begins to protect, unless that was left to others.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn keep(&mut self, tell: Tell) -> Result<(), LiveError> {
        if let Some(vault) = self.vault.take().filter(|_| self.keeping.threads > 0) {
            self.live = Some(Live::keep(vault, self.keeping, tell)?);
        }
        Ok(())
    }

    /// Where it is shown.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Where its vault is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// What protects it, unless others do.
    pub fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    /// Whether someone has unmounted it.
    pub fn is_unmounted(&self) -> bool {
        self.mounted.is_over()
    }

    /// Unmounts, records what is left to record, and finishes what is in hand. Programs that use it are waited for as long as
    /// `patience` lasts. Says whether it was taken from under them then.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn stop(self, patience: Duration) -> Result<bool, LiveError> {
        let taken = match self.mounted.is_over() {
            true => false,
            false => self
                .mounted
                .unmount_within(&self.mountpoint, patience)
                .map_err(|source| MountError::Busy { path: self.mountpoint.clone(), source })?,
        };
        self.live.map(Live::stop).transpose()?;
        // Whoever still writes leaves the mark: the next mount looks at everything.
        if !taken {
            self.recorder.finish().map_err(at(&self.location.repository))?;
        }
        Ok(taken)
    }
}

/// The path that leads to a place without symbolic links; what is not there yet lies below what is.
fn real(path: &Path) -> PathBuf {
    match (std::fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_), Some(above), Some(name)) if above.as_os_str().is_empty() => real(Path::new(".")).join(name),
        (Err(_), Some(above), Some(name)) => real(above).join(name),
        (Err(_), ..) => path.to_owned(),
    }
}

/// A mount must not show itself.
fn refuse_overlap(source: &Path, mountpoint: &Path) -> Result<(), LiveError> {
    if source.starts_with(mountpoint) || mountpoint.starts_with(source) {
        let (mountpoint, path) = (mountpoint.to_owned(), source.to_owned());
        return Err(MountError::Overlap { mountpoint, path }.into());
    }
    Ok(())
}

/// A mount must hide nothing.
fn refuse_full(mountpoint: &Path) -> Result<(), LiveError> {
    match std::fs::read_dir(mountpoint).map_err(at(mountpoint))?.next() {
        Some(_) => Err(MountError::NotEmpty { path: mountpoint.to_owned() }.into()),
        None => Ok(()),
    }
}

/// The directory of ours that lies in the source, if it does.
fn hidden_name<'a>(source: &Path, repository: &'a Path) -> &'a OsStr {
    let inside = std::fs::canonicalize(repository).is_ok_and(|path| path.parent() == Some(source));
    repository.file_name().filter(|_| inside).unwrap_or(OsStr::new(OWN))
}

/// What reads are checked against, and where they are noted.
fn verified(location: &Location, say: Say) -> Result<VerifiedReads, LiveError> {
    let Vault { storage, coders, catalogue, clock, .. } = Vault::open(location, Clock::System)?;
    // One that nobody holds while a note waits to be written.
    let known = Catalogue::open(&location.repository.join("catalogue.sqlite")).map_err(VaultError::from)?;
    let (known, warn, is_warned) = (Mutex::new(known), Arc::clone(&say), AtomicBool::new(false));
    let names = move |version: &Generation| {
        let names = sync::lock(&known).by_inode(version);
        names.unwrap_or_else(|error| {
            if !is_warned.swap(true, Ordering::Relaxed) {
                warn(&format!("files that were renamed may be read unverified: {error}"));
            }
            Vec::new()
        })
    };
    let catalogue = Arc::new(Mutex::new(catalogue));
    let note = move |path: &[u8], report: &Report| {
        let path = Shown::bytes(path);
        let (blocks, causes) = (report.reconstructed, report.causes());
        say(&format!(
            "{path}: {blocks} blocks were made from others to read it ({causes}); see `gabion scrub`"
        ));
        let catalogue = sync::lock(&catalogue);
        if let Err(error) = degraded::note(&catalogue, report, clock.now()) {
            say(&format!("that cannot be noted: {error}"));
        }
    };
    Ok(VerifiedReads { storage, coders, names: Box::new(names), note: Box::new(note) })
}
