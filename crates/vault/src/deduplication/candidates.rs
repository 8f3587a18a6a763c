//! The search for equal redundancy, and the steps by which files begin to share it.
//!
//! The order of durable steps: the body under its name; links of references; references, each by a rename over the
//! redundancy file that it replaces. After a crash between any two, each file has its own redundancy or a complete
//! reference, and what is left over is found by [`sweep`](super::references::sweep).

use super::comparison::{Digest, digest, is_shareable, key};
use super::references::new_link;
use super::{LARGEST_HEADER, LEAST_BYTES, Purpose, Sharing};
use crate::display_path::DisplayPath;
use crate::format::frame::{Check, SIGNATURE_BYTES, check_of, toggle};
use crate::format::{FileId, FrameKey, Header, Records};
use crate::redundancy::body::{directory_of, path_of};
use crate::redundancy::fence::is_superseded;
use crate::redundancy::{Draft, Part, PartPath, REDUNDANCY};
use crate::throttle::Throttle;
use crate::tree::{Tree, join};
use crate::vault::Vault;
use crate::world::unique_id;
use std::collections::{HashMap, HashSet};
use std::io;

/// References that are made durable together.
const BATCH: usize = 64;

/// A body that files can refer to.
#[derive(Debug, Clone, Copy)]
struct Body {
    id: FileId,
    /// Sum of the checks of its frames.
    root: Check,
}

/// A reference that is written and not published yet.
struct Reference {
    path: Vec<u8>,
    draft: Draft,
    link: Vec<u8>,
    body: FileId,
    saved: u64,
    /// Keeps writers out until the reference is published.
    _old: Part,
}

/// Bytes of frames, which are kept once if they are shared.
fn frame_bytes(part: &Part) -> u64 {
    Records::of_body(&part.header).file()
}

/// A comparison of the redundancy of a vault.
pub(super) struct Comparing<'a> {
    vault: &'a Vault,
    tree: &'a Tree,
    purpose: Purpose,
    throttle: &'a Throttle<'a>,
    sharing: &'a mut Sharing,
    batch: Vec<Reference>,
    /// Bytes of redundancy that references replaced, and of the bodies that were made for them.
    bytes: (u64, u64),
    /// Whether the file system has hard links, once that is known.
    has_links: Option<bool>,
    /// Some files that may share could not be compared or replaced.
    is_incomplete: bool,
    /// Files may be waiting for a worker, which will replace their redundancy.
    has_pending: bool,
}

impl<'a> Comparing<'a> {
    pub(super) fn new(
        vault: &'a Vault,
        tree: &'a Tree,
        purpose: Purpose,
        throttle: &'a Throttle<'a>,
        sharing: &'a mut Sharing,
    ) -> Comparing<'a> {
        let has_pending = vault.changelog.pending().map_or(true, |summary| summary.entries() > 0);
        Comparing {
            vault,
            tree,
            purpose,
            throttle,
            sharing,
            batch: Vec::new(),
            bytes: (0, 0),
            has_links: None,
            is_incomplete: false,
            has_pending,
        }
    }

    fn place(&self, path: &[u8]) -> PartPath {
        PartPath { tree: self.tree.clone(), path: join(REDUNDANCY, path) }
    }

    fn fail(&mut self, path: &[u8], error: &io::Error) {
        self.sharing.failed.push(format!("{}: {error}", DisplayPath::bytes(path)));
    }

    /// Compares files of equal size. Failures are listed.
    pub(super) fn compare(&mut self, paths: Vec<Vec<u8>>, stopped: &dyn Fn() -> bool) {
        let mut alike: HashMap<Digest, Vec<Vec<u8>>> = HashMap::new();
        if self.has_links == Some(false) {
            return;
        }
        for path in paths {
            if stopped() {
                return;
            }
            if let Some(key) = self.key_of(&path) {
                alike.entry(key).or_default().push(path);
            }
        }
        let mut alike: Vec<Vec<Vec<u8>>> = alike.into_values().filter(|paths| paths.len() > 1).collect();
        alike.sort();
        for paths in alike {
            self.compare_alike(paths, stopped);
        }
    }

    /// Key of a file that may share; none if it has to keep its redundancy for now.
    fn key_of(&self, path: &[u8]) -> Option<Digest> {
        let Vault { storage, policy, changelog, clock, coders, .. } = self.vault;
        let stat = storage.find(path).ok()??;
        let treatment = policy.decide(path, &stat, clock.now()).treatment?;
        if !treatment.share_duplicates || (self.has_pending && changelog.is_pending(path).unwrap_or(true)) {
            return None;
        }
        // Damaged redundancy is for scrub and repair.
        let part = self.place(path).try_open(coders).ok()??;
        let binding = storage.binding(path).ok()?;
        let is_its = part.header.belongs_to(&binding, Some(&stat.generation()));
        let is_worth_it = frame_bytes(&part) >= LEAST_BYTES && part.header_bytes() <= LARGEST_HEADER;
        if is_its && is_worth_it && is_shareable(&part) { key(&part, coders) } else { None }
    }

    /// Compares files whose redundancy begins alike. Those that share already come first.
    fn compare_alike(&mut self, paths: Vec<Vec<u8>>, stopped: &dyn Fn() -> bool) {
        let mut bodies: HashMap<Digest, Body> = HashMap::new();
        let (mut known, mut own) = (HashSet::new(), Vec::new());
        for path in paths {
            let Ok(Some(part)) = self.place(&path).try_open(&self.vault.coders) else { continue };
            let Some(id) = part.header.body() else {
                own.push(path);
                continue;
            };
            if known.insert(id) {
                let root = part.header.root;
                match self.digest_of(&part) {
                    Ok(Some(digest)) => drop(bodies.entry(digest).or_insert(Body { id, root })),
                    Ok(None) => {}
                    Err(error) => self.fail(&path, &error),
                }
            }
        }
        let mut alone: HashMap<Digest, Vec<u8>> = HashMap::new();
        for path in own {
            if stopped() {
                return;
            }
            if let Err(error) = self.compare_one(&path, &mut bodies, &mut alone) {
                self.fail(&path, &error);
            }
        }
    }

    fn digest_of(&self, part: &Part) -> io::Result<Option<Digest>> {
        digest(part, &self.vault.coders, self.throttle, |_, _, _| Ok(()))
    }

    /// Lets a file share with one before it, or remembers it for those that follow.
    fn compare_one(
        &mut self,
        path: &[u8],
        bodies: &mut HashMap<Digest, Body>,
        alone: &mut HashMap<Digest, Vec<u8>>,
    ) -> io::Result<()> {
        let Some((draft, part)) = self.open(path)? else { return Ok(()) };
        let Some(digest) = self.digest_of(&part)? else { return Ok(()) };
        if let Some(body) = bodies.get(&digest) {
            return self.refer(path, draft, part, *body);
        }
        if !self.has_links(draft.as_ref()) {
            return Ok(());
        }
        let Some(other) = alone.remove(&digest) else {
            alone.insert(digest, path.to_vec());
            return Ok(());
        };
        let Some(body) = self.make_body(&part, &digest)? else { return Ok(()) };
        bodies.insert(digest, body);
        self.bytes.1 += frame_bytes(&part);
        self.refer(path, draft, part, body)?;
        // It may have been protected again since it was compared.
        let Some((draft, part)) = self.open(&other)? else { return Ok(()) };
        match self.digest_of(&part)? {
            Some(now) if now == digest => self.refer(&other, draft, part, body),
            _ => Ok(()),
        }
    }

    /// True if references can be counted here. Tried with the first draft; a failure is listed once.
    fn has_links(&mut self, draft: Option<&Draft>) -> bool {
        if let (None, Some(draft)) = (self.has_links, draft) {
            let tried = draft.try_link();
            if let Err(error) = &tried {
                let why = "nothing is shared, because the repository has no hard links";
                self.sharing.failed.push(format!("{why}: {error}"));
            }
            self.has_links = Some(tried.is_ok());
        }
        self.has_links != Some(false)
    }

    /// Opens redundancy that may be replaced by a reference, with the draft of that. In a survey there is no draft.
    fn open(&self, path: &[u8]) -> io::Result<Option<(Option<Draft>, Part)>> {
        let place = self.place(path);
        let draft = match self.purpose {
            Purpose::Share => Some(Draft::new(place.clone())?),
            Purpose::Survey => None,
        };
        let Ok(Some(part)) = place.try_open(&self.vault.coders) else { return Ok(None) };
        let is_seen = draft.as_ref().map_or(Ok(true), |draft| draft.may_replace(&part.file))?;
        let is_usable = is_seen && !part.is_shared() && is_shareable(&part);
        Ok(is_usable.then_some((draft, part)))
    }

    /// Writes the frames of a redundancy file as a body. None if they are not what they were.
    fn make_body(&self, part: &Part, wanted: &Digest) -> io::Result<Option<Body>> {
        let id = FileId(unique_id()?);
        let (key, records) = (FrameKey { id, ..part.header.frame_key() }, Records::of_body(&part.header));
        let mut body = Body { id, root: [0; SIGNATURE_BYTES] };
        if self.purpose == Purpose::Survey {
            return Ok(Some(body));
        }
        let draft = Draft::new(PartPath { tree: self.tree.clone(), path: path_of(id) })?;
        let table = self.vault.coders.of_header(&part.header).map_err(io::Error::other)?.table_bytes();
        let mut bound = Vec::new();
        let write = |frame: &[u8], column: usize, stripe: u64| {
            bound.clear();
            bound.extend_from_slice(&frame[..frame.len() - SIGNATURE_BYTES]);
            let check =
                check_of(key, column, stripe, &frame[frame.len() - table..][..table - SIGNATURE_BYTES]);
            bound.extend_from_slice(&check);
            toggle(&mut body.root, &check);
            draft.write(records.frame_offset(column, stripe), &bound)
        };
        if digest(part, &self.vault.coders, self.throttle, write)?.as_ref() != Some(wanted) {
            return Ok(None);
        }
        draft.sync()?;
        draft.publish_durably()?;
        Ok(Some(body))
    }

    /// Writes the reference of a file.
    fn refer(&mut self, path: &[u8], draft: Option<Draft>, part: Part, body: Body) -> io::Result<()> {
        let saved = frame_bytes(&part);
        let Some(draft) = draft else {
            self.sharing.files += 1;
            self.bytes.0 += saved;
            return Ok(());
        };
        let header = Header { revision: part.header.revision + 1, ..part.header.clone() };
        let header = header.sharing(body.id, body.root);
        let header_bytes = header.encode(0).map_err(io::Error::other)?.len();
        draft.write_headers(&header, header_bytes)?;
        let link = new_link(body.id)?;
        draft.link(&link)?;
        let path = path.to_vec();
        self.batch.push(Reference { path, draft, link, body: body.id, saved, _old: part });
        if self.batch.len() >= BATCH {
            self.publish();
        }
        Ok(())
    }

    /// Publishes what was found, and counts what was saved. True if nothing is left to compare again.
    pub(super) fn finish(mut self) -> bool {
        self.publish();
        self.sharing.saved = self.bytes.0.saturating_sub(self.bytes.1);
        self.sharing.failed.is_empty() && !self.is_incomplete
    }

    /// Makes the references of the batch durable and publishes them.
    fn publish(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return;
        }
        if let Err(error) = self.make_durable(&batch) {
            self.sharing.failed.push(format!("references to shared redundancy: {error}"));
            self.drop_links(batch.into_iter().map(|reference| reference.link));
            return;
        }
        let mut unused = Vec::new();
        for mut reference in batch {
            match self.publish_one(&mut reference) {
                Ok(true) => {
                    self.sharing.files += 1;
                    self.bytes.0 += reference.saved;
                }
                Ok(false) => {
                    self.is_incomplete = true;
                    unused.push(reference.link);
                }
                Err(error) => {
                    self.fail(&reference.path, &error);
                    unused.push(reference.link);
                }
            }
        }
        self.drop_links(unused.into_iter());
    }

    fn make_durable(&self, batch: &[Reference]) -> io::Result<()> {
        if self.tree.syncs_as_a_whole()? {
            return self.tree.sync_all();
        }
        for reference in batch {
            reference.draft.sync()?;
            self.tree.sync_directory(&directory_of(reference.body))?;
        }
        Ok(())
    }

    /// False if the file was protected again, moved or removed meanwhile.
    fn publish_one(&self, reference: &mut Reference) -> io::Result<bool> {
        // Another host counts references, too. It sees the link, or this sees that it took the body away.
        if self.tree.find(&path_of(reference.body))?.is_none() {
            return Ok(false);
        }
        match reference.draft.replace() {
            Err(error) if is_superseded(&error) => Ok(false),
            replaced => replaced.map(|()| true),
        }
    }

    /// A link that stays is found by the next run.
    fn drop_links(&self, links: impl Iterator<Item = Vec<u8>>) {
        for link in links {
            let _ = self.tree.remove(&link);
        }
    }
}
