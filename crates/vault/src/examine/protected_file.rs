//! A protected file with its redundancy, opened.

use super::ExamineError;
use super::open_in_order;
use super::stripe_reader::LazyState;
use crate::catalogue::Entry;
use crate::coder::{Coder, Coders};
use crate::format::Header;
use crate::geometry::Cut;
use crate::redundancy::{Part, PartError, PartPath};
use crate::storage::{Content, RedundancyLocation, Storage};
use crate::tree::{Generation, Stat};
use crate::version;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

/// A protected file, opened with its redundancy.
#[derive(Debug)]
pub struct ProtectedFile {
    /// The open file; none if it does not exist.
    pub content: Option<Box<dyn Content>>,
    /// Properties of the file.
    pub stat: Option<Stat>,
    /// Usable redundancy files that belong together.
    pub parts: Vec<Part>,
    /// Unusable redundancy files, with reasons.
    pub unusable: Vec<(std::path::PathBuf, String)>,
    /// Header of the newest revision.
    pub header: Header,
    /// Prepared code.
    pub coder: Arc<Coder>,
    pub(super) lazy: LazyState,
}

/// Splits redundancy files into those that belong together, newest first, and the others: a target that was offline
/// returns with older redundancy, and a file that took the name of another has that one's redundancy next to its own.
/// Of several histories the one is used that protects the present version `now`, then one that differs by permissions
/// or names only, then one of an earlier content; if none does, the one written last. For each column the newest file
/// is used.
pub(crate) fn belonging(mut parts: Vec<Part>, now: Option<Generation>) -> (Vec<Part>, Vec<Part>) {
    let fits = |part: &Part| {
        let was = &part.header.generation;
        now.map(|now| (now == *was, now.is_unwritten_since(was), now.inode == was.inode))
    };
    parts.sort_by_key(|part| std::cmp::Reverse((fits(part), part.header.revision)));
    let mut heads: Vec<&Part> = Vec::new();
    for part in &parts {
        if heads.iter().all(|head| head.header.id != part.header.id) {
            heads.push(part);
        }
    }
    heads.reverse();
    let head = heads.into_iter().max_by_key(|part| (fits(part), part.header.protected_at));
    let Some(header) = head.map(|part| part.header.clone()) else { return (parts, Vec::new()) };
    let mut held = vec![false; header.code.m()];
    parts.into_iter().partition(|part| {
        let Header { version, id, code, strong, geometry, generation, .. } = &part.header;
        // After an interrupted change of the number of columns, headers differ in it. What the newest one no longer
        // counts is a leftover.
        let belongs = *id == header.id
            && *version == header.version
            && (*code == header.code || code.shares_columns(&header.code))
            && part.columns().end <= held.len()
            && *strong == header.strong
            && *geometry == header.geometry
            && generation.size == header.generation.size;
        let take = |new: bool, column: usize| new | !std::mem::replace(&mut held[column], true);
        belongs && part.columns().fold(false, take)
    })
}

/// True if the error is about this process, its permissions and its limits, and not about the file.
fn is_of_the_process(error: &io::Error) -> bool {
    use rustix::io::Errno;
    // An interrupted update cannot be completed on a read-only medium.
    let limits = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ROFS];
    error.kind() == io::ErrorKind::PermissionDenied
        || limits.iter().any(|limit| error.raw_os_error() == Some(limit.raw_os_error()))
}

impl ProtectedFile {
    /// Opens a file and its redundancy.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub fn open(storage: &dyn Storage, coders: &Coders, path: &[u8]) -> Result<ProtectedFile, ExamineError> {
        ProtectedFile::open_by(storage, path, coders, PartPath::open)
    }

    /// Opens a file with its redundancy, except for redundancy that is being written: does not wait.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub(crate) fn try_open(
        storage: &dyn Storage,
        coders: &Coders,
        path: &[u8],
    ) -> Result<ProtectedFile, ExamineError> {
        ProtectedFile::open_by(storage, path, coders, PartPath::try_open)
    }

    /// Opens a file with the redundancy of its present version. Does not wait for redundancy of another version that is
    /// being written.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub(super) fn open_present(
        storage: &dyn Storage,
        coders: &Coders,
        path: &[u8],
    ) -> Result<ProtectedFile, ExamineError> {
        let is_unchanged = |was: &Header| {
            // If the file cannot be opened, all redundancy is useful.
            let now = storage.open(path).and_then(|content| content.stat());
            now.map_or(true, |now| version::is_unchanged(was, &now.generation()))
        };
        let open = |place: &PartPath, coders: &Coders| place.open_if_useful(coders, is_unchanged);
        ProtectedFile::open_by(storage, path, coders, open)
    }

    /// Opens redundancy at a given place for the file that `open_content` opens. Does not wait for redundancy that is
    /// being written and is not `of_use`.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub(crate) fn open_at(
        place: PartPath,
        coders: &Coders,
        open_content: impl Fn() -> io::Result<Box<dyn Content>>,
        of_use: impl Fn(&Header) -> bool,
    ) -> Result<ProtectedFile, ExamineError> {
        let holder = RedundancyLocation { target: Vec::new(), place, owner: None };
        let open = |place: &PartPath, coders: &Coders| place.open_if_useful(coders, &of_use);
        ProtectedFile::assemble(vec![holder], open_content, coders, open)
    }

    fn open_by(
        storage: &dyn Storage,
        path: &[u8],
        coders: &Coders,
        open: impl Fn(&PartPath, &Coders) -> Result<Option<Part>, PartError>,
    ) -> Result<ProtectedFile, ExamineError> {
        let holders = match storage.redundancy_locations(path) {
            // A deleted file has no redundancy in storage that keeps it by inode.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            holders => holders.map_err(ExamineError::Read)?,
        };
        ProtectedFile::assemble(holders, || storage.open(path), coders, open)
    }

    fn assemble(
        holders: Vec<RedundancyLocation>,
        open_content: impl Fn() -> io::Result<Box<dyn Content>>,
        coders: &Coders,
        open: impl Fn(&PartPath, &Coders) -> Result<Option<Part>, PartError>,
    ) -> Result<ProtectedFile, ExamineError> {
        let (mut parts, mut unusable, mut refused, mut later) = (Vec::new(), Vec::new(), None, None);
        let opened = open_in_order(&holders, |holder| Ok::<_, Infallible>(open(&holder.place, coders)));
        let Ok(opened) = opened;
        for (holder, opened) in holders.iter().zip(opened) {
            let place = &holder.place;
            match opened {
                Ok(None) => {}
                Ok(Some(part)) if !holder.owns(&part.header) => {
                    unusable.push((place.tree.shown(&place.path), "it is of another file".to_owned()));
                }
                Ok(Some(mut part)) => {
                    if let Err(error) = part.check_trailer(coders) {
                        unusable.push((place.tree.shown(&place.path), error.to_string()));
                    }
                    parts.push(part);
                }
                // A directory with redundancy of other files.
                Err(PartError::Io(error)) if error.kind() == io::ErrorKind::InvalidInput => {}
                Err(error) => {
                    unusable.push((place.tree.shown(&place.path), error.to_string()));
                    if error.is_later() {
                        later = Some(error.to_string());
                    }
                    if let PartError::Io(error) = error
                        && is_of_the_process(&error)
                    {
                        refused = Some(error);
                    }
                }
            }
        }
        if parts.is_empty() {
            // Missing permission does not mean that the file is lost.
            open_content().map(drop).or_else(|error| match is_of_the_process(&error) {
                true => Err(ExamineError::Read(error)),
                false => Ok(()),
            })?;
            if let Some(error) = refused {
                return Err(ExamineError::Refused(error));
            }
            if let Some(why) = later {
                return Err(ExamineError::Later(why));
            }
            return Err(match unusable.first() {
                None => ExamineError::Unprotected,
                Some((_, why)) => ExamineError::Unusable(why.clone()),
            });
        }
        let content = match crate::tree::absent_is_none(open_content()) {
            Ok(content) => content,
            // The name is now that of a directory or another special file.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => None,
            Err(error) => return Err(ExamineError::Read(error)),
        };
        let stat = content.as_ref().map(|content| content.stat()).transpose().map_err(ExamineError::Read)?;
        let size = stat.map_or(0, |stat| stat.size);
        let (parts, hollow): (Vec<Part>, Vec<Part>) =
            parts.into_iter().partition(|part| part.is_plausible(size));
        if let (true, Some(part)) = (parts.is_empty(), hollow.first()) {
            let why = format!("it speaks of {} bytes that are not there", part.header.generation.size);
            return Err(ExamineError::Unusable(why));
        }
        let (together, mut others) = belonging(parts, stat.map(|stat| stat.generation()));
        others.extend(hollow);
        let Some(first) = together.first() else { return Err(ExamineError::Unprotected) };
        let header = first.header.clone();
        let stale =
            others.iter().map(|part| (part.place.tree.shown(&part.place.path), "it is of another version"));
        unusable.extend(stale.map(|(path, why)| (path, why.to_owned())));
        let coder = coders.of_header(&header)?;
        let lazy = LazyState::default();
        let mut protected = ProtectedFile { content, stat, parts: together, unusable, header, coder, lazy };
        // If all columns of the newest version are present, other files are leftovers of a target that was offline and
        // no loss.
        if protected.columns() == protected.header.code.m() {
            protected.unusable.clear();
        }
        Ok(protected)
    }

    /// Opens the file that `entry` describes. Redundancy older than the entry is rejected, since a correct file must
    /// not be reverted to it. If another file has taken the name, its redundancy is its own and the entry does not
    /// apply. A pool counts versions: redundancy of the same version is valid whenever it was made.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub fn open_known(
        storage: &dyn Storage,
        coders: &Coders,
        path: &[u8],
        entry: &Entry,
    ) -> Result<ProtectedFile, ExamineError> {
        let protected = ProtectedFile::open(storage, coders, path)?;
        let is_same = protected.header.id == entry.id;
        let is_same_version = storage.keeps_by_identity() && protected.header.generation == entry.generation;
        match is_same && !is_same_version && protected.header.protected_at < entry.protected_at {
            true => Err(ExamineError::Unusable("it is older than what was protected last".to_owned())),
            false => Ok(protected),
        }
    }

    /// Division of the protected version into blocks.
    pub fn cut(&self) -> Cut {
        self.header.geometry.cut(self.header.generation.size)
    }

    /// True if the file was written since it was protected, or if that cannot be excluded.
    pub fn is_changed(&self) -> bool {
        self.stat.is_none_or(|now| !version::is_unchanged(&self.header, &now.generation()))
    }

    /// Number of redundancy columns with a file.
    pub fn columns(&self) -> usize {
        (0..self.header.code.m()).filter(|&column| self.holds(column)).count()
    }

    /// True if a redundancy column has a file.
    pub(super) fn holds(&self, column: usize) -> bool {
        self.parts.iter().filter(|part| self.is_current(part)).any(|part| part.columns().contains(&column))
    }

    /// True if the redundancy file is of the version that was protected last. Others are read as far as they match, but
    /// have to be written again.
    pub fn is_current(&self, part: &Part) -> bool {
        part.header.revision == self.header.revision && part.header.generation == self.header.generation
    }
}
