//! A mounted directory or pool with its recorder and workers.

use super::{Access, LiveError, ProtectOptions, at, directory};
use crate::compute::Compute;
use gabion_mount::{
    Directory, MountError, Mounted, Options, Outage, Privileges, Recorder, VerifiedReads, clear_dead_mount,
    mount,
};
use gabion_platform::open_files;
use gabion_platform::sync;
use gabion_vault::catalogue::PossibleNames;
use gabion_vault::coder::Coders;
use gabion_vault::degraded::{self, Report};
use gabion_vault::display_path::DisplayPath;
use gabion_vault::mark::OnNotice;
use gabion_vault::monitor::{self, Live, Notify};
use gabion_vault::storage::Storage;
use gabion_vault::storage::TargetState;
use gabion_vault::storage::plain::Plain;
use gabion_vault::storage::pool::Pool;
use gabion_vault::tree::{Generation, Tree};
use gabion_vault::vault::{Location, OWN, Vault};
use gabion_vault::world::{Clock, Stopwatch};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Source of a mount.
#[derive(Debug, Clone)]
pub enum Source {
    /// A directory, with its repository if that is outside of it.
    Directory(PathBuf, Option<PathBuf>),
    /// A pool, with its name for messages.
    Pool(Pool, PathBuf),
}

/// Settings of a mount.
#[derive(Debug, Clone)]
pub struct MountPlan {
    /// The source.
    pub source: Source,
    /// The mount point.
    pub mountpoint: PathBuf,
    /// Policy or code, and changelog.
    pub protection: ProtectOptions,
    /// The device that computes.
    pub compute: Compute,
    /// Settings of the workers; with 0 threads, other processes encode.
    pub keeping: monitor::Options,
    /// Serving threads.
    pub threads: usize,
    /// Access of other users.
    pub access: Access,
    /// Read-only mount.
    pub read_only: bool,
    /// Allow setuid programs, if the source does.
    pub suid: bool,
    /// Allow device nodes, if the source does.
    pub dev: bool,
    /// Verify reads.
    pub verify: bool,
    /// FUSE passthrough for files of a directory that are not verified.
    pub passthrough: bool,
    /// Behaviour while the changelog is unavailable.
    pub outage: Outage,
}

/// A source that is mounted and protected.
pub struct MountedSource {
    mounted: Mounted,
    recorder: Arc<Recorder>,
    /// Taken when protection begins.
    vault: Option<Vault>,
    keeping: monitor::Options,
    live: Option<Live>,
    mountpoint: PathBuf,
    location: Location,
}

/// Time without an answer of the changelog's server after which the end of a mount does not wait for it: marks are
/// renewed every three seconds.
const SILENCE: Duration = Duration::from_secs(8);

/// Interval at which that is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Receives messages for the user.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

impl MountPlan {
    /// Mounts the source. Changes are recorded from now on; workers start with [`MountedSource::keep`].
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn start(self, say: Say) -> Result<MountedSource, LiveError> {
        if clear_dead_mount(&self.mountpoint).map_err(at(&self.mountpoint))? {
            say("removed the stale mount of a dead process");
        }
        let mountpoint = std::fs::canonicalize(&self.mountpoint).map_err(at(&self.mountpoint))?;
        directory(&mountpoint)?;
        // Each file that a program opens takes a descriptor here.
        open_files::allow(open_files::MOST);
        let (name, mut vault, location) = self.open(&mountpoint, &say)?;
        vault.coders = self.compute.coders(self.keeping.threads.max(1))?;
        let repository = vault.repository.path().to_owned();
        let (changelog, rules) = (Arc::clone(&vault.changelog), vault.read_policy()?);
        let tell = Arc::clone(&say);
        let notice: OnNotice = Box::new(move |notice| tell(&notice.to_string()));
        let recorder = Recorder::start(changelog, rules, Clock::System, self.outage, &repository, notice);
        let recorder = Arc::new(recorder.map_err(at(&repository))?);
        let mounted = self.mount(&name, &mut vault, &location, (&recorder, &mountpoint), &say);
        let mounted = mounted.inspect_err(|_| {
            if let Err(why) = recorder.withdraw() {
                say(&format!("the mark of this mount stays, and will be lost: {why}"));
            }
        })?;
        let (vault, live) = (Some(vault), None);
        Ok(MountedSource { mounted, recorder, vault, keeping: self.keeping, live, mountpoint, location })
    }

    fn mount(
        &self,
        name: &Path,
        vault: &mut Vault,
        location: &Location,
        (recorder, mountpoint): (&Arc<Recorder>, &Path),
        say: &Say,
    ) -> Result<Mounted, LiveError> {
        // Now others know of this mount.
        vault.refuse_if_moved()?;
        let repository = vault.repository.path().to_owned();
        let options = Options {
            name: name.display().to_string(),
            threads: self.threads,
            allow_other: self.access.allows_others(say),
            read_only: self.read_only,
            privileges: self.privileges(name, say),
        };
        match &self.source {
            Source::Pool(pool, _) => {
                let (coders, theirs) = (self.compute.coders(self.threads)?, Arc::clone(recorder));
                let verified = if self.verify {
                    Some(verified(location, self.compute.coders(self.threads)?, Arc::clone(say))?)
                } else {
                    None
                };
                let files = gabion_mount::Pool::new(pool.clone(), coders, Clock::System, theirs, verified);
                // Workers then ask the mount which bytes were written, and recognise corruption.
                vault.storage = Box::new(pool.clone());
                mount(files.map_err(at(name))?, mountpoint, &options).map_err(LiveError::from)
            }
            Source::Directory(..) => {
                let hidden = hidden_name(name, &repository);
                let verified = if self.verify {
                    Some(verified(location, self.compute.coders(self.threads)?, Arc::clone(say))?)
                } else {
                    None
                };
                let files = Directory::new(name, hidden, Arc::clone(recorder), verified, self.passthrough);
                let files = files.map_err(at(name))?;
                // Workers then ask the mount which bytes were written, and recognise corruption. What mounts on other
                // hosts wrote would be taken for corruption.
                if !vault.settings.is_shared() {
                    let root = Tree::open(name).map_err(at(name))?;
                    let storage = Plain::new(root, vault.repository.clone());
                    files.set_writer_of(&storage);
                    vault.storage = Box::new(storage);
                }
                mount(files, mountpoint, &options).map_err(LiveError::from)
            }
        }
    }

    /// The requested privileges, limited to those of the source.
    fn privileges(&self, name: &Path, say: &Say) -> Privileges {
        let allowed = match &self.source {
            Source::Pool(pool, _) => Privileges::of(&pool.paths()),
            Source::Directory(..) => Privileges::of(&[name.to_owned()]),
        };
        for (requested, allowed, option, flag) in
            [(self.suid, allowed.suid, "--suid", "nosuid"), (self.dev, allowed.dev, "--dev", "nodev")]
        {
            if requested && !allowed {
                say(&format!("the source is mounted {flag}, so this mount is {flag} too, despite {option}"));
            }
        }
        Privileges { suid: self.suid && allowed.suid, dev: self.dev && allowed.dev, exec: allowed.exec }
    }

    /// The path of the source, its vault, and the vault's location.
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
                // A repository below the mount point would be hidden, and its accesses would go through the mount
                // itself.
                refuse_overlap(&real(&location.repository), mountpoint)?;
                Ok((source, self.protection.set_up(&location, &**say)?, location))
            }
        }
    }
}

/// The vault of a pool. If its target is lost, a new vault is created from the headers of redundancy files.
fn pool_vault(pool: &Pool, protection: &ProtectOptions, say: &Say) -> Result<(Vault, Location), LiveError> {
    let location = Location::of_pool(pool)?;
    let exists = location.repository.join("vault.toml").exists();
    let all_answer = pool.targets().iter().all(|target| target.state != TargetState::Offline);
    if !exists && !all_answer && Vault::of_pool(pool, Clock::System)?.1 {
        say(
            "the target with the pool's vault is offline: created a new vault, with a catalogue rebuilt from headers",
        );
    }
    Ok((protection.set_up(&location, &**say)?, location))
}

impl MountedSource {
    /// Starts the workers, if there are any.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn keep(&mut self, notify: Notify) -> Result<(), LiveError> {
        if let Some(vault) = self.vault.take().filter(|_| self.keeping.threads > 0) {
            self.live = Some(Live::keep(vault, self.keeping, notify)?);
        }
        Ok(())
    }

    /// The mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Location of its vault.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The workers, if there are any.
    pub fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    /// True if it was unmounted from outside.
    pub fn is_unmounted(&self) -> bool {
        self.mounted.is_over()
    }

    /// Unmounts, flushes the recorder and stops the workers. Waits up to `patience` for programs that use the mount;
    /// then detaches it. True if it was detached. Does not wait for a server that does not answer any more.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn stop(self, patience: Duration) -> Result<bool, LiveError> {
        // The changelog of one host always answers.
        let Some(pulse) = self.recorder.pulse() else { return self.end(patience, &AtomicBool::new(false)) };
        let (over, is_detached) = (self.mounted.over(), Arc::new(AtomicBool::new(false)));
        let (theirs, place) = (Arc::clone(&is_detached), self.mountpoint.clone());
        let ending = std::thread::Builder::new().name("ending".to_owned());
        let ending = ending.spawn(move || self.end(patience, &theirs)).map_err(at(&place))?;
        // Since when programs wait for nothing any more. A server that came back just before has time to answer.
        let mut over_since = None;
        while !ending.is_finished() {
            if [&over, &is_detached].iter().any(|it| it.load(Ordering::Acquire)) {
                let waited = over_since.get_or_insert_with(Stopwatch::start).elapsed();
                let silent = pulse.silent_for();
                if silent.min(waited) >= SILENCE {
                    return Err(LiveError::Unanswered(silent));
                }
            }
            std::thread::sleep(LOOK);
        }
        ending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn end(self, patience: Duration, is_detached: &AtomicBool) -> Result<bool, LiveError> {
        let taken = if self.mounted.is_over() {
            self.mounted.wait();
            false
        } else {
            let unmounted = self.mounted.unmount_within(&self.mountpoint, patience);
            unmounted.map_err(|source| MountError::Busy { path: self.mountpoint.clone(), source })?
        };
        is_detached.store(taken, Ordering::Release);
        self.live.map(Live::stop).transpose()?;
        // Programs may still write through a detached mount: the mark stays, and the next mount scans everything.
        if !taken {
            self.recorder.finish().map_err(at(&self.location.repository))?;
        }
        Ok(taken)
    }
}

/// Canonical path; components that do not exist yet are appended.
fn real(path: &Path) -> PathBuf {
    match (std::fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_), Some(above), Some(name)) if above.as_os_str().is_empty() => real(Path::new(".")).join(name),
        (Err(_), Some(above), Some(name)) => real(above).join(name),
        (Err(_), ..) => path.to_owned(),
    }
}

/// Refuses a mount point within the source, and a source within the mount point.
fn refuse_overlap(source: &Path, mountpoint: &Path) -> Result<(), LiveError> {
    if source.starts_with(mountpoint) || mountpoint.starts_with(source) {
        let (mountpoint, path) = (mountpoint.to_owned(), source.to_owned());
        return Err(MountError::Overlap { mountpoint, path }.into());
    }
    Ok(())
}

/// Refuses a mount point that is not empty.
fn refuse_full(mountpoint: &Path) -> Result<(), LiveError> {
    match std::fs::read_dir(mountpoint).map_err(at(mountpoint))?.next() {
        Some(_) => Err(MountError::NotEmpty { path: mountpoint.to_owned() }.into()),
        None => Ok(()),
    }
}

/// Name of the repository in the source, which the mount hides.
fn hidden_name<'a>(source: &Path, repository: &'a Path) -> &'a OsStr {
    let inside = std::fs::canonicalize(repository).is_ok_and(|path| path.parent() == Some(source));
    repository.file_name().filter(|_| inside).unwrap_or(OsStr::new(OWN))
}

/// Storage for verified reads, with a callback that records degraded ones.
fn verified(location: &Location, coders: Coders, say: Say) -> Result<VerifiedReads, LiveError> {
    let vault = Vault::open(location, Clock::System)?;
    // A second connection, which is never locked while a note is written.
    let known = vault.open_catalogue()?;
    let Vault { storage, pool, catalogue, clock, .. } = vault;
    if let Some(pool) = pool {
        pool.serve_mount();
    }
    let (known, warn, is_warned) = (Mutex::new(known), Arc::clone(&say), AtomicBool::new(false));
    let names = move |version: &Generation| {
        let known = sync::lock(&known);
        // Without the server, what is known here has to do.
        let _ = known.follow_if_old();
        let names = known.possible_names(version);
        names.unwrap_or_else(|error| {
            if !is_warned.swap(true, Ordering::Relaxed) {
                warn(&format!("files that were renamed may be read unverified: {error}"));
            }
            PossibleNames::default()
        })
    };
    let catalogue = Arc::new(Mutex::new(catalogue));
    let note = move |path: &[u8], report: &Report| {
        let path = DisplayPath::bytes(path);
        let (blocks, causes) = (report.reconstructed, report.causes());
        say(&format!("{path}: {blocks} blocks were reconstructed to read it ({causes}); run `gabion scrub`"));
        let catalogue = sync::lock(&catalogue);
        if let Err(error) = degraded::note(&catalogue, report, clock.now()) {
            say(&format!("cannot record the degraded read: {error}"));
        }
    };
    Ok(VerifiedReads { storage, coders, names: Box::new(names), note: Box::new(note) })
}
