//! Extended attributes of files, links and directories, including access control lists.

use super::Shared;
use super::acl::{self, ACCESS, Attributes, DEFAULT, List};
use super::errors::ForKernel;
use crate::recorder::NO_CONTENT;
use crate::replies::Answer;
use gabion_vault::live::{DirectoryChange, LiveEntry};
use gabion_vault::storage::pool::PoolError;
use gabion_vault::storage::pool::stub::Stub;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Most bytes of extended attributes of a file: they are stored in headers of redundancy files.
const MAX_ATTRIBUTES: usize = 16 << 10;

/// The same for a directory: they are stored in one extended attribute on each mirror, for which most file systems have
/// one block.
const MAX_OF_DIRECTORY: usize = 1500;

fn refuse(number: Errno) -> PoolError {
    PoolError::Caller { doing: "changing attributes", source: number.into() }
}

/// Sets an attribute, subject to `flags` and the limit of `room` bytes.
fn put(
    attributes: &mut Attributes,
    (name, value): (&[u8], &[u8]),
    flags: XattrFlags,
    room: usize,
) -> Result<(), PoolError> {
    match attributes.iter().position(|(known, _)| known == name) {
        Some(_) if flags.contains(XattrFlags::CREATE) => return Err(refuse(Errno::EXIST)),
        None if flags.contains(XattrFlags::REPLACE) => return Err(refuse(Errno::NODATA)),
        Some(at) => {
            attributes.swap_remove(at);
        }
        None => {}
    }
    let bytes: usize = attributes.iter().map(|(name, value)| name.len() + value.len() + 6).sum();
    if bytes + name.len() + value.len() + 6 > room {
        return Err(refuse(Errno::NOSPC));
    }
    attributes.push((name.to_vec(), value.to_vec()));
    Ok(())
}

fn take(attributes: &mut Attributes, name: &[u8]) -> Result<(), PoolError> {
    let known = attributes.iter().position(|(known, _)| known == name);
    attributes.swap_remove(known.ok_or_else(|| refuse(Errno::NODATA))?);
    Ok(())
}

impl Shared {
    fn attributes_of_number(&self, number: u64) -> Answer<Attributes> {
        if let Some(inode) = self.opened(number) {
            return Ok(inode.file.with_stub(|stub| stub.metadata.attributes.clone()));
        }
        let _names = self.read_names();
        Ok(match self.found(number)? {
            LiveEntry::Directory(_, extra) => extra.attributes,
            LiveEntry::File(stub) => stub.metadata.attributes,
        })
    }

    pub(crate) fn attribute(&self, number: u64, name: &[u8]) -> Answer<Vec<u8>> {
        let found = self.attributes_of_number(number)?.into_iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value).ok_or_else(|| Errno::NODATA.into())
    }

    pub(crate) fn attribute_names(&self, number: u64) -> Answer<Vec<u8>> {
        let attributes = self.attributes_of_number(number)?;
        Ok(attributes.iter().flat_map(|(name, _)| [name.as_slice(), b"\0"].concat()).collect())
    }

    /// Changes attributes, and the mode to that of the list `mode` if there is one.
    fn change_attributes(
        &self,
        number: u64,
        mode: Option<&List>,
        change: impl Fn(&mut Attributes, usize) -> Result<(), PoolError>,
    ) -> Answer<()> {
        if Shared::is_directory(number) {
            let _names = self.read_names();
            let path = self.path(number)?;
            let changed = |extra: &mut gabion_vault::storage::pool::DirectoryExtra| {
                change(&mut extra.attributes, MAX_OF_DIRECTORY)
            };
            self.live.update_directory_extra(&path, changed).for_kernel()?;
            if let (Some(list), LiveEntry::Directory(stat, _)) = (mode, self.found(number)?) {
                let change =
                    DirectoryChange { mode: Some(list.mode(stat.mode)), ..DirectoryChange::default() };
                self.live.change_directory(&path, change).for_kernel()?;
            }
            return Ok(());
        }
        let inode = self.hold(number)?;
        let name = || self.nodes.paths(number);
        let done = self.work(&inode, || {
            inode.file.update(&name, |stub: &mut Stub| {
                change(&mut stub.metadata.attributes, MAX_ATTRIBUTES)?;
                stub.metadata.attributes.sort();
                stub.metadata.mode = mode.map_or(stub.metadata.mode, |list| list.mode(stub.metadata.mode));
                Ok(())
            })
        });
        if done.is_ok() && inode.file.with_stub(Stub::is_file) {
            self.pending.add(number, NO_CONTENT, self.rest_of(&inode));
        }
        self.let_go(&inode);
        done
    }

    pub(crate) fn set_attribute(
        &self,
        number: u64,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Answer<()> {
        if name == ACCESS || name == DEFAULT {
            let list = List::decode(value).ok_or(Errno::INVAL)?;
            if name == DEFAULT && !Shared::is_directory(number) {
                return Err(Errno::ACCESS.into());
            }
            let mode = (name == ACCESS).then_some(&list);
            return self.change_attributes(number, mode, |attributes, room| {
                acl::put(attributes, name, None);
                let is_kept = name == DEFAULT || list.is_extended();
                if is_kept { put(attributes, (name, value), XattrFlags::empty(), room) } else { Ok(()) }
            });
        }
        if name.starts_with(b"system.") {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.change_attributes(number, None, |attributes, room| put(attributes, (name, value), flags, room))
    }

    pub(crate) fn remove_attribute(&self, number: u64, name: &[u8]) -> Answer<()> {
        self.change_attributes(number, None, |attributes, _| take(attributes, name))
    }
}
