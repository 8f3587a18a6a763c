//! A protected file with its redundancy, opened.

use super::ExamineError;
use crate::catalogue::Entry;
use crate::coder::{Coder, Coders};
use crate::format::Header;
use crate::geometry::Cut;
use crate::redundancy::{Part, PartError, PartPath};
use crate::storage::{Content, RedundancyLocation, Storage};
use crate::tree::{Generation, Stat};
use crate::version;
use std::io;
use std::sync::Arc;

/// A protected file, opened with its redundancy.
#[derive(Debug)]
pub struct Subject {
    /// The file; nothing if it is gone.
    pub content: Option<Box<dyn Content>>,
    /// What the file system says of it.
    pub stat: Option<Stat>,
    /// Its redundancy files that can be opened and belong together.
    pub parts: Vec<Part>,
    /// Redundancy files that cannot be used, and why.
    pub unusable: Vec<(std::path::PathBuf, String)>,
    /// The header that counts: the one of the newest revision.
    pub header: Header,
    /// The code, ready.
    pub coder: Arc<Coder>,
}

/// The redundancy files of a file that belong together, the newest first, and those that do not: a target that was away
/// comes back with what it had, and a file that got the name of another has the redundancy of that one beside its own. Of several
/// histories that counts which protects the file as it is, `now`, then as it was before it got other rights or names, or before it was
/// written; if none does, the one that was written last. Of one column, the newest counts.
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
        let belongs = *id == header.id
            && *version == header.version
            && *code == header.code
            && *strong == header.strong
            && *geometry == header.geometry
            && generation.size == header.generation.size;
        let take = |new: bool, column: usize| new | !std::mem::replace(&mut held[column], true);
        belongs && part.columns().fold(false, take)
    })
}

/// Whether an error speaks of this process, its rights and its limits, and not of the file.
fn is_of_the_process(error: &io::Error) -> bool {
    use rustix::io::Errno;
    // An update that nobody finished cannot be finished on a medium that is read-only.
    let limits = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ROFS];
    error.kind() == io::ErrorKind::PermissionDenied
        || limits.iter().any(|limit| error.raw_os_error() == Some(limit.raw_os_error()))
}

impl Subject {
    /// Opens a file and its redundancy.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub fn open(storage: &dyn Storage, coders: &Coders, path: &[u8]) -> Result<Subject, ExamineError> {
        Subject::open_by(storage, path, coders, PartPath::open)
    }

    /// Opens a file and that redundancy of it which nobody is making just now: nobody is waited for.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub(crate) fn try_open(
        storage: &dyn Storage,
        coders: &Coders,
        path: &[u8],
    ) -> Result<Subject, ExamineError> {
        Subject::open_by(storage, path, coders, PartPath::try_open)
    }

    /// Opens a file and what there is of the redundancy of its present version: nobody waits for redundancy of another one.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub(crate) fn open_to_read(
        storage: &dyn Storage,
        coders: &Coders,
        path: &[u8],
    ) -> Result<Subject, ExamineError> {
        let is_unchanged = |was: &Header| {
            // Of a file that cannot be looked at, all that there is is of use.
            let now = storage.open(path).and_then(|content| content.stat());
            now.map_or(true, |now| version::is_unchanged(was, &now.generation()))
        };
        let open = |place: &PartPath, coders: &Coders| place.open_if_useful(coders, is_unchanged);
        Subject::open_by(storage, path, coders, open)
    }

    /// Opens redundancy at a place, whatever its name, for a file that `open_content` opens. Nobody waits for redundancy that is not `of_use`.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub(crate) fn open_at(
        place: PartPath,
        coders: &Coders,
        open_content: impl Fn() -> io::Result<Box<dyn Content>>,
        of_use: impl Fn(&Header) -> bool,
    ) -> Result<Subject, ExamineError> {
        let holder = RedundancyLocation { target: Vec::new(), place, owner: None };
        let open = |place: &PartPath, coders: &Coders| place.open_if_useful(coders, &of_use);
        Subject::assemble(vec![holder], open_content, coders, open)
    }

    fn open_by(
        storage: &dyn Storage,
        path: &[u8],
        coders: &Coders,
        open: impl Fn(&PartPath, &Coders) -> Result<Option<Part>, PartError>,
    ) -> Result<Subject, ExamineError> {
        let holders = match storage.redundancy_locations(path) {
            // A file that is gone has no redundancy where that belongs to the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            holders => holders.map_err(ExamineError::Read)?,
        };
        Subject::assemble(holders, || storage.open(path), coders, open)
    }

    fn assemble(
        holders: Vec<RedundancyLocation>,
        open_content: impl Fn() -> io::Result<Box<dyn Content>>,
        coders: &Coders,
        open: impl Fn(&PartPath, &Coders) -> Result<Option<Part>, PartError>,
    ) -> Result<Subject, ExamineError> {
        let (mut parts, mut unusable, mut refused, mut later) = (Vec::new(), Vec::new(), None, None);
        for holder in holders {
            let place = &holder.place;
            match open(place, coders) {
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
                // A directory of other files' redundancy.
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
            // What this process may not look at is not lost.
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
            // Something else has its name now: a directory, a socket.
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
        let mut subject = Subject { content, stat, parts: together, unusable, header, coder };
        // With all columns of the newest version, what else lies around was left behind by a target that was away: it is no loss.
        if subject.columns() == subject.header.code.m() {
            subject.unusable.clear();
        }
        Ok(subject)
    }

    /// Opens a file that `entry` is about. Redundancy of an older version than the one that was protected last is none: a file that
    /// is right must not be taken back to it. Another file may have got the name since: then its redundancy is its own, and `entry` says nothing of it. A
    /// pool counts versions: redundancy of the same one is as good whenever it was made, before its target was away or elsewhere meanwhile.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub fn open_known(
        storage: &dyn Storage,
        coders: &Coders,
        path: &[u8],
        entry: &Entry,
    ) -> Result<Subject, ExamineError> {
        let subject = Subject::open(storage, coders, path)?;
        let is_same = subject.header.id == entry.id;
        let is_same_version = storage.keeps_by_identity() && subject.header.generation == entry.generation;
        match is_same && !is_same_version && subject.header.protected_at < entry.protected_at {
            true => Err(ExamineError::Unusable("it is older than what was protected last".to_owned())),
            false => Ok(subject),
        }
    }

    /// The cut of the protected version.
    pub fn cut(&self) -> Cut {
        self.header.geometry.cut(self.header.generation.size)
    }

    /// Whether the file system says that the content was written since it was protected, or cannot tell that it was not.
    pub fn is_changed(&self) -> bool {
        self.stat.is_none_or(|now| !version::is_unchanged(&self.header, &now.generation()))
    }

    /// Redundancy columns that have a file.
    pub fn columns(&self) -> usize {
        (0..self.header.code.m()).filter(|&column| self.holds(column)).count()
    }

    /// Whether a redundancy column has a file.
    pub(super) fn holds(&self, column: usize) -> bool {
        self.parts.iter().filter(|part| self.is_current(part)).any(|part| part.columns().contains(&column))
    }

    /// Whether a redundancy file was there when the file was protected last. One that was not is read, as far as it still
    /// fits, but it has to be made anew.
    pub fn is_current(&self, part: &Part) -> bool {
        part.header.revision == self.header.revision && part.header.generation == self.header.generation
    }
}
