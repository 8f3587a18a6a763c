//! A pool as storage that is protected.

use super::config::VERSION;
use super::content::PoolContent;
use super::error::PoolError;
use super::extent;
use super::namespace::{Entry, look_up, look_up_file, names};
use super::repair::PoolRepair;
use super::stub::Stub;
use super::view::{Copy, View};
use super::{Pool, placement};
use crate::coder::Coders;
use crate::format::{Binding, FileId};
use crate::geometry::{Geometry, Tail};
use crate::redundancy::Place;
use crate::storage::lane::Lane;
use crate::storage::{
    Content, Folder, Holder, Home, Layout, LayoutError, Reconstruct, Repairable, Repository, Storage, Target,
    TargetState,
};
use crate::tree::{Generation, Names, Stat, join};
use gabion_engine::Code;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A directory of the namespace.
struct PoolFolder {
    view: Arc<View>,
    copies: Vec<Copy>,
    path: Vec<u8>,
    names: Names,
    device: u64,
}

impl Folder for PoolFolder {
    fn names(&self) -> &Names {
        &self.names
    }

    fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        let path = join(&self.path, name);
        let entry = look_up(&self.copies, &path)?;
        let entry = entry.ok_or_else(|| PoolError::path(&path, io::ErrorKind::NotFound))?;
        Ok(entry.settled(&self.view).stat(&path, self.device))
    }
}

impl Entry {
    /// What the namespace says of it. Numbers are the same whichever mirror answered.
    pub(crate) fn stat(&self, path: &[u8], device: u64) -> Stat {
        match self {
            Entry::File(stub) => stub.stat(device),
            Entry::Directory(stat) => {
                let mut inode = [0; 8];
                inode.copy_from_slice(&blake3::hash(path).as_bytes()[..8]);
                Stat { inode: u64::from_le_bytes(inode), device, ..*stat }
            }
        }
    }
}

impl Storage for Pool {
    fn kind(&self) -> &'static str {
        "pool"
    }

    fn folder(&self, path: &[u8]) -> io::Result<Box<dyn Folder + '_>> {
        let copies = self.shared.copies()?;
        let names = names(&copies, path)?;
        let (view, device) = (self.shared.known(), self.shared.device);
        Ok(Box::new(PoolFolder { view, copies, path: path.to_vec(), names, device }))
    }

    fn find(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        let entry = look_up(&self.shared.copies()?, path)?;
        let view = self.shared.known();
        Ok(entry.map(|entry| entry.settled(&view).stat(path, self.shared.device)))
    }

    fn is_being_written(&self, path: &[u8]) -> io::Result<bool> {
        match look_up(&self.shared.copies()?, path)? {
            Some(Entry::File(stub)) => extent::is_being_written(&self.shared.known(), &stub),
            _ => Ok(false),
        }
    }

    fn check_end(&self, path: &[u8]) -> io::Result<()> {
        match look_up(&self.shared.copies()?, path)? {
            Some(Entry::File(stub)) => match extent::hides_the_end(&self.shared.known(), &stub) {
                Some(target) => Err(extent::end_unknown(target)),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn conclude_writing(&self, path: &[u8]) -> io::Result<()> {
        let is_left = |stub: &Stub| -> io::Result<bool> {
            Ok(stub.writing && !extent::is_being_written(&self.shared.known(), stub)?)
        };
        match look_up(&self.shared.copies()?, path)? {
            Some(Entry::File(stub)) if is_left(&stub)? => {}
            _ => return Ok(()),
        }
        let mut change = self.shared.change()?;
        let stub = look_up_file(&change.copies, path)?;
        let view = self.shared.known();
        // Another one may have begun to write.
        if !is_left(&stub)? {
            return Ok(());
        }
        if let Some(target) = extent::hides_the_end(&view, &stub) {
            return Err(extent::end_unknown(target));
        }
        let stub = Stub { writing: false, ..extent::settled(&view, stub) };
        extent::sync_objects(&view, &stub)?;
        change.publish(path, stub)?;
        Ok(())
    }

    fn written_since(&self, path: &[u8], version: &Generation, _: &Generation) -> Option<Vec<Range<u64>>> {
        self.writer()?.written_since(path, version)
    }

    fn mend(&self, path: &[u8], cells: &[Range<u64>], _: Reconstruct<'_>) {
        if let Some(writer) = self.writer() {
            writer.mend(path, cells);
        }
    }

    fn binding(&self, path: &[u8]) -> io::Result<Binding> {
        Ok(Binding(look_up_file(&self.shared.copies()?, path)?.id.0))
    }

    fn open(&self, path: &[u8]) -> io::Result<Box<dyn Content>> {
        Ok(Box::new(PoolContent::open(&self.shared, path)?))
    }

    fn open_for_repair(&self, path: &[u8]) -> io::Result<Box<dyn Repairable>> {
        Ok(Box::new(PoolRepair::open(&self.shared, path)?))
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let name = self.shared.view().config.name.clone();
        PathBuf::from(format!("{name}:")).join(std::ffi::OsStr::from_bytes(path))
    }

    fn layout(&self, path: &[u8], code: &Code, _block: u64) -> Result<Layout, LayoutError> {
        let copies = self.shared.copies().map_err(io::Error::from)?;
        let stub = look_up_file(&copies, path).map_err(io::Error::from)?;
        if stub.targets.len() != code.k() {
            return Err(LayoutError::Columns { code: code.k(), storage: stub.targets.len() });
        }
        let geometry = Geometry::new(code.k() as u64, stub.block, 1, Tail::Striped, code.granule() as u64)?;
        let targets = stub.targets.into_iter().map(String::into_bytes).collect();
        Ok(Layout { geometry, targets })
    }

    fn writable_repositories(&self) -> Vec<Repository> {
        let view = self.shared.view();
        let takes_writes = |repository: &Repository| {
            view.disk(&repository.target).is_some_and(|(_, disk)| disk.ask_to_write().is_ok())
        };
        self.repositories().into_iter().filter(takes_writes).collect()
    }

    fn repositories(&self) -> Vec<Repository> {
        let view = self.shared.view();
        let mut answers = view.answers();
        // Of redundancy that is there twice, the one that counts comes first.
        answers.sort_by_key(|(index, _)| view.config.target[*index].state);
        let answers = answers.into_iter();
        let name = |index: usize| view.config.target[index].name.clone().into_bytes();
        answers.map(|(index, answer)| Repository { target: name(index), tree: answer.tree }).collect()
    }

    fn keeps_by_identity(&self) -> bool {
        true
    }

    fn identity(&self, path: &[u8]) -> io::Result<Option<FileId>> {
        Ok(Some(look_up_file(&self.shared.copies()?, path)?.id))
    }

    fn holders(&self, path: &[u8]) -> io::Result<Vec<Holder>> {
        let stub = look_up_file(&self.shared.copies()?, path)?;
        Ok(self.holders_of(path, &stub))
    }

    fn bring_home(&self, path: &[u8], coders: &Coders) -> io::Result<()> {
        if self.shared.view().config.format < VERSION {
            // Redundancy at its new place is for programs that look there: a change raises the version.
            drop(self.shared.change()?);
        }
        let stub = look_up_file(&self.shared.copies()?, path)?;
        Ok(self.bring_redundancy_home(path, &stub, coders)?)
    }

    fn homes(&self, path: &[u8], code: &Code, layout: &Layout) -> io::Result<Vec<Home>> {
        let id = look_up_file(&self.shared.copies()?, path)?.id;
        Ok(placement::redundancy(&self.shared.view(), id, code.m(), layout))
    }

    fn patience(&self, place: &Place) -> Option<Arc<Lane>> {
        let view = self.shared.view();
        let disk = view.disks.iter().find(|disk| disk.path == place.tree.path())?;
        Some(disk.lane.clone())
    }

    fn targets(&self) -> Vec<Target> {
        let view = self.shared.view();
        let target = |(member, disk): (&super::config::Member, &Arc<super::disk::Disk>)| {
            let state = View::state(member, disk);
            let space = disk.ask().ok().and_then(|answer| answer.tree.space().ok());
            let (name, domain) = (member.name.clone().into_bytes(), member.domain.clone());
            Target { name, domain, state, space: space.filter(|_| state != TargetState::Offline) }
        };
        view.members().map(target).collect()
    }
}
