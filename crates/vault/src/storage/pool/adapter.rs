//! Storage adapter of a pool.

use super::config::{TargetName, VERSION};
use super::content::PoolContent;
use super::error::PoolError;
use super::extent;
use super::namespace::{NamespaceEntry, look_up, look_up_file, names};
use super::repair::PoolRepair;
use super::stub::Stub;
use super::view::{MirrorCopy, View};
use super::{Pool, placement};
use crate::coder::Coders;
use crate::format::{Binding, FileId};
use crate::geometry::{Geometry, Tail};
use crate::redundancy::PartPath;
use crate::storage::deadline_io::DeadlineIo;
use crate::storage::{
    Content, Folder, Layout, LayoutError, OpenForRepair, ParityPlacement, Reconstruct, RedundancyLocation,
    Repository, Storage, Target, TargetState,
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
    copies: Vec<MirrorCopy>,
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
        Ok(entry.with_current_size(&self.view).stat(&path, self.device))
    }
}

impl NamespaceEntry {
    /// Status of an entry. Inode numbers do not depend on the mirror.
    pub(crate) fn stat(&self, path: &[u8], device: u64) -> Stat {
        match self {
            NamespaceEntry::File(stub) => stub.stat(device),
            NamespaceEntry::Directory(stat) => {
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
        let (view, device) = (self.shared.cached_view(), self.shared.device);
        Ok(Box::new(PoolFolder { view, copies, path: path.to_vec(), names, device }))
    }

    fn find(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        let entry = look_up(&self.shared.copies()?, path)?;
        let view = self.shared.cached_view();
        Ok(entry.map(|entry| entry.with_current_size(&view).stat(path, self.shared.device)))
    }

    fn is_being_written(&self, path: &[u8]) -> io::Result<bool> {
        match look_up(&self.shared.copies()?, path)? {
            Some(NamespaceEntry::File(stub)) => extent::is_being_written(&self.shared.cached_view(), &stub),
            _ => Ok(false),
        }
    }

    fn check_size_known(&self, path: &[u8]) -> io::Result<()> {
        match look_up(&self.shared.copies()?, path)? {
            Some(NamespaceEntry::File(stub)) => {
                match extent::target_hiding_size(&self.shared.cached_view(), &stub) {
                    Some(target) => Err(extent::size_unknown(target)),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn finish_abandoned_write(&self, path: &[u8]) -> io::Result<()> {
        let is_left = |stub: &Stub| -> io::Result<bool> {
            Ok(stub.writing && !extent::is_being_written(&self.shared.cached_view(), stub)?)
        };
        match look_up(&self.shared.copies()?, path)? {
            Some(NamespaceEntry::File(stub)) if is_left(&stub)? => {}
            _ => return Ok(()),
        }
        let mut change = self.shared.change()?;
        let stub = look_up_file(&change.copies, path)?;
        let view = self.shared.cached_view();
        // Another writer may have started.
        if !is_left(&stub)? {
            return Ok(());
        }
        if let Some(target) = extent::target_hiding_size(&view, &stub) {
            return Err(extent::size_unknown(target));
        }
        let stub = Stub { writing: false, ..extent::with_current_size(&view, stub) };
        extent::sync_objects(&view, &stub)?;
        change.publish(path, stub)?;
        Ok(())
    }

    fn written_since(&self, path: &[u8], version: &Generation, _: &Generation) -> Option<Vec<Range<u64>>> {
        self.writer()?.written_since(path, version)
    }

    fn repair_blocks(&self, path: &[u8], cells: &[Range<u64>], _: Reconstruct<'_>) {
        if let Some(writer) = self.writer() {
            writer.repair_blocks(path, cells);
        }
    }

    fn binding(&self, path: &[u8]) -> io::Result<Binding> {
        Ok(Binding(look_up_file(&self.shared.copies()?, path)?.id.0))
    }

    fn open(&self, path: &[u8]) -> io::Result<Box<dyn Content>> {
        Ok(Box::new(PoolContent::open(&self.shared, path)?))
    }

    fn open_for_repair(&self, path: &[u8], content: Option<Box<dyn Content>>) -> io::Result<OpenForRepair> {
        Ok((Box::new(PoolRepair::open(&self.shared, path)?), content))
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
        let targets = stub.targets.into_iter().map(TargetName::into_bytes).collect();
        Ok(Layout { geometry, targets })
    }

    fn writable_repositories(&self) -> Vec<Repository> {
        let view = self.shared.view();
        let takes_writes = |repository: &Repository| {
            view.disk(&repository.target).is_some_and(|(_, disk)| disk.online_writable().is_ok())
        };
        self.repositories().into_iter().filter(takes_writes).collect()
    }

    fn repositories(&self) -> Vec<Repository> {
        let view = self.shared.view();
        let mut answers = view.online_targets();
        // If redundancy exists twice, the valid copy comes first.
        answers.sort_by_key(|(index, _)| view.config.target[*index].state);
        let answers = answers.into_iter();
        let name = |index: usize| view.config.target[index].name.clone().into_bytes();
        answers.map(|(index, online)| Repository { target: name(index), tree: online.tree }).collect()
    }

    fn keeps_by_identity(&self) -> bool {
        true
    }

    fn identity(&self, path: &[u8]) -> io::Result<Option<FileId>> {
        Ok(Some(look_up_file(&self.shared.copies()?, path)?.id))
    }

    fn redundancy_locations(&self, path: &[u8]) -> io::Result<Vec<RedundancyLocation>> {
        let stub = look_up_file(&self.shared.copies()?, path)?;
        Ok(self.redundancy_locations_of(path, &stub))
    }

    fn relocate_former_redundancy(&self, path: &[u8], coders: &Coders) -> io::Result<()> {
        if self.shared.view().config.format < VERSION {
            // Only programs of the new format find redundancy at the new path, so the version is raised first.
            drop(self.shared.change()?);
        }
        let stub = look_up_file(&self.shared.copies()?, path)?;
        Ok(self.relocate_former_redundancy_of(path, &stub, coders)?)
    }

    fn parity_placements(
        &self,
        path: &[u8],
        code: &Code,
        layout: &Layout,
    ) -> io::Result<Vec<ParityPlacement>> {
        let id = look_up_file(&self.shared.copies()?, path)?.id;
        Ok(placement::parity_placements(&self.shared.view(), id, code.m(), layout))
    }

    fn io_deadline(&self, place: &PartPath) -> Option<Arc<DeadlineIo>> {
        let view = self.shared.view();
        let disk = view.disks.iter().find(|disk| disk.path == place.tree.path())?;
        Some(disk.deadline_io.clone())
    }

    fn targets(&self) -> Vec<Target> {
        let view = self.shared.view();
        let target = |(member, disk): (&super::config::Member, &Arc<super::disk::Disk>)| {
            let state = View::state(member, disk);
            let space = disk.online().ok().and_then(|online| online.tree.space().ok());
            let (name, domain) = (member.name.clone().into_bytes(), member.domain.clone());
            Target { name, domain, state, space: space.filter(|_| state != TargetState::Offline) }
        };
        view.members().map(target).collect()
    }
}
