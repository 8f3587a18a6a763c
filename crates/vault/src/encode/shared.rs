//! Encoding of one large file by several workers.
//!
//! The worker that claimed the file creates the drafts of its redundancy and shares the work with a
//! [team](crate::team). A portion is a range of stripes. Another worker finds file and drafts by a description, encodes
//! a portion into the drafts, makes that durable and answers with the checks of its frames. All of them read the
//! version of the file that the description names; the first worker compares it again after the last portion, as for
//! any file.
//!
//! A worker that was given up may still write to the drafts, the same bytes as its successor. But nothing may write to
//! redundancy once it is published, so the drafts are copied to new files then.

use super::error::EncodeError;
use super::rows::Rows;
use super::totals::{Totals, encode_rows};
use super::{EncodeOptions, Encoder, ParityFilePlan};
use crate::changelog::tasks::{Amounts, TaskKind};
use crate::coder::Coder;
use crate::format::{Header, Records};
use crate::geometry::Cut;
use crate::redundancy::{Draft, decode};
use crate::storage::Content;
use crate::team::{Divisible, Terms, share};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Portions of files that are encoded.
pub(crate) const ENCODE: TaskKind = TaskKind(b'e');

/// Bytes of data in a portion: some seconds of work of a slow worker.
const PORTION_BYTES: u64 = if cfg!(test) { 256 << 10 } else { 64 << 20 };

/// Most portions of a file; those of larger files are larger.
const MAX_PORTIONS: u64 = 1 << 12;

/// Smallest file that is shared, in portions.
const MIN_PORTIONS: u64 = 2;

/// Version of the description.
const VERSION: u8 = 1;

/// Stripes of the portions of a file.
#[derive(Debug, Clone, Copy)]
struct Division {
    /// Stripes of a portion.
    stripes: u64,
    /// Stripes of the file.
    all: u64,
}

impl Division {
    fn of(cut: &Cut) -> Division {
        let all = cut.stripes();
        let bytes = PORTION_BYTES.max(cut.size().div_ceil(MAX_PORTIONS));
        let per_stripe = cut.size().div_ceil(all.max(1)).max(1);
        Division { stripes: bytes.div_ceil(per_stripe).max(1), all }
    }

    fn count(self) -> u64 {
        self.all.div_ceil(self.stripes)
    }

    fn range(self, portion: u64) -> Option<Range<u64>> {
        let start = portion.checked_mul(self.stripes).filter(|&start| start < self.all)?;
        Some(start..(start + self.stripes).min(self.all))
    }
}

/// What another worker has to know.
struct Description {
    path: Vec<u8>,
    /// Name of the draft and encoded header, per redundancy file.
    files: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Appends a field with its length.
fn put(field: &[u8], out: &mut Vec<u8>) {
    out.extend((field.len() as u64).to_le_bytes());
    out.extend(field);
}

/// Takes a field from the front.
fn take<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = input.split_first_chunk()?;
    let (field, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    *input = rest;
    Some(field)
}

impl Description {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put(&self.path, &mut out);
        for (name, header) in &self.files {
            put(name, &mut out);
            put(header, &mut out);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Description> {
        let (&VERSION, mut rest) = bytes.split_first()? else { return None };
        let path = take(&mut rest)?.to_vec();
        let mut files = Vec::new();
        while !rest.is_empty() {
            files.push((take(&mut rest)?.to_vec(), take(&mut rest)?.to_vec()));
        }
        (!files.is_empty()).then_some(Description { path, files })
    }
}

/// Result of a portion: numbers of encoded stripes and of bytes that were read, and the root of each redundancy file.
fn result_of(totals: &Totals) -> Vec<u8> {
    let mut out = [totals.encoded.to_le_bytes(), totals.read.to_le_bytes()].concat();
    out.extend(totals.roots.as_flattened());
    out
}

/// The totals of a result; none if it is not one.
fn totals_of(result: &[u8], files: usize) -> Option<Totals> {
    let mut totals = Totals::new(files);
    let (encoded, rest) = result.split_first_chunk()?;
    let (read, rest) = rest.split_first_chunk()?;
    (totals.encoded, totals.read) = (u64::from_le_bytes(*encoded), u64::from_le_bytes(*read));
    let (roots, []) = rest.as_chunks::<16>() else { return None };
    (roots.len() == files).then(|| totals.roots.copy_from_slice(roots))?;
    Some(totals)
}

fn nonsense() -> EncodeError {
    let why = "another worker described its work in a way that is not understood here";
    EncodeError::read(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// The rows of a file whose redundancy is new.
fn fresh_rows<'a>(
    coder: &'a Arc<Coder>,
    content: &'a dyn Content,
    parity_files: &'a [ParityFilePlan],
) -> Rows<'a> {
    Rows { coder, old_coders: &[], content, parity_files, tracker: None, written: None, in_place: false }
}

/// A file that is encoded in portions.
struct FilePortions<'a> {
    rows: &'a Rows<'a>,
    cut: &'a Cut,
    division: Division,
    options: EncodeOptions<'a>,
    totals: Totals,
    /// Bytes that are done.
    done: &'a AtomicU64,
}

impl FilePortions<'_> {
    fn add(&mut self, totals: Totals, bytes: u64) {
        let so_far = std::mem::replace(&mut self.totals, Totals::new(self.rows.parity_files.len()));
        self.totals = so_far.and(totals);
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Divisible for FilePortions<'_> {
    type Portion = ();
    type Error = EncodeError;

    /// The number says everything.
    fn content(&self, (): &()) -> Vec<u8> {
        Vec::new()
    }

    fn work(&mut self, number: u64, (): ()) -> Result<(), EncodeError> {
        let range = self.division.range(number).ok_or_else(nonsense)?;
        let totals = encode_rows(self.rows, self.cut, range.clone(), self.options)?;
        self.add(totals, self.cut.bytes_of(range));
        Ok(())
    }

    fn collect(&mut self, number: u64, (): &(), result: &[u8]) -> Result<bool, EncodeError> {
        let totals = totals_of(result, self.rows.parity_files.len());
        let (Some(totals), Some(range)) = (totals, self.division.range(number)) else { return Ok(false) };
        let bytes = self.cut.bytes_of(range);
        (self.options.elsewhere)(bytes);
        self.add(totals, bytes);
        Ok(true)
    }
}

impl Encoder<'_> {
    /// Encodes a file by a team, if there is one and the file is large and its redundancy new. Returns nothing
    /// otherwise.
    pub(super) fn share(
        &self,
        path: &[u8],
        coder: &Arc<Coder>,
        content: &dyn Content,
        parity_files: &mut [ParityFilePlan],
        cut: &Cut,
        options: EncodeOptions<'_>,
    ) -> Result<Option<Totals>, EncodeError> {
        let division = Division::of(cut);
        let Some(team) = options.team.filter(|_| division.count() >= MIN_PORTIONS) else { return Ok(None) };
        let mut description = Description { path: path.to_vec(), files: Vec::new() };
        for file in &*parity_files {
            let draft = file.draft.as_ref().filter(|_| file.old.is_none() && file.other_columns.is_none());
            let Some(name) = draft.and_then(Draft::shared_name) else { return Ok(None) };
            let header = file.header.encode(file.header_bytes).map_err(io::Error::other);
            let header = header.map_err(EncodeError::write(&file.placement.place))?;
            description.files.push((name.to_vec(), header));
        }
        if description.files.is_empty() {
            return Ok(None);
        }
        let (rows, done) = (fresh_rows(coder, content, parity_files), AtomicU64::new(0));
        let totals = Totals::new(parity_files.len());
        let mut portions = FilePortions { rows: &rows, cut, division, options, totals, done: &done };
        let amounts = || {
            let bytes = done.load(Ordering::Relaxed);
            Amounts { files: 0, bytes, all_files: 1, all_bytes: cut.size() }
        };
        let about = &description.encode();
        let terms = Terms { kind: ENCODE, priority: 0, about, amounts: &amounts, stopped: options.stopped };
        let overtaken = share(Some(team), &terms, &mut portions, |sharing| {
            (0..division.count()).try_for_each(|_| sharing.add(()))
        })?;
        let totals = portions.totals;
        if (options.stopped)() {
            return Err(EncodeError::Stopped);
        }
        for file in parity_files.iter_mut().filter(|_| overtaken) {
            let place = file.placement.place.clone();
            file.draft =
                file.draft.take().map(Draft::copied).transpose().map_err(EncodeError::write(&place))?;
        }
        Ok(Some(totals))
    }

    /// Does a portion of another worker's file. Its content is durable in the drafts afterwards.
    ///
    /// # Errors
    /// The file is not the one that is described, or has changed; errors of reading and writing.
    pub fn encode_portion(
        &self,
        about: &[u8],
        portion: u64,
        options: EncodeOptions<'_>,
    ) -> Result<Vec<u8>, EncodeError> {
        let Description { path, files } = Description::decode(about).ok_or_else(nonsense)?;
        let headers = files.iter().map(|(_, header)| match decode(header, self.coders) {
            Ok((decoded, length)) if length == header.len() => Ok(decoded),
            _ => Err(nonsense()),
        });
        let headers = headers.collect::<Result<Vec<Header>, EncodeError>>()?;
        let first = &headers.first().ok_or_else(nonsense)?.clone();
        let coder = self.coders.of_header(first)?;
        let content = self.storage.open(&path).map_err(EncodeError::read)?;
        let same_version = || match content.stat() {
            Ok(stat) if stat.generation() == first.generation => Ok(()),
            Ok(_) => Err(EncodeError::Changed),
            Err(error) => Err(EncodeError::read(error)),
        };
        same_version()?;
        self.refuse_being_written(&path)?;
        let layout = self.storage.layout(&path, coder.code(), first.geometry.block())?;
        let placements =
            self.storage.parity_placements(&path, coder.code(), &layout).map_err(EncodeError::read)?;
        if layout.geometry != first.geometry || placements.len() != headers.len() {
            return Err(EncodeError::Changed);
        }
        let cut = first.geometry.cut(first.generation.size);
        let mut parity_files = Vec::new();
        for ((placement, header), (name, bytes)) in placements.into_iter().zip(headers).zip(&files) {
            let is_same = (placement.first, placement.columns) == (header.first, header.columns)
                && (&header.code, header.strong, header.version)
                    == (&first.code, first.strong, first.version)
                && (header.geometry, header.generation) == (first.geometry, first.generation);
            if !is_same {
                return Err(EncodeError::Changed);
            }
            let draft = Draft::of_another(placement.place.clone(), name);
            let draft = Some(draft.map_err(EncodeError::write(&placement.place))?);
            let records = Records::new(&header, bytes.len());
            let header_bytes = bytes.len();
            let (old, other_columns) = (None, None);
            parity_files.push(ParityFilePlan {
                placement,
                header,
                header_bytes,
                records,
                old,
                other_columns,
                draft,
            });
        }
        let range = Division::of(&cut).range(portion).ok_or_else(nonsense)?;
        let rows = fresh_rows(&coder, &*content, &parity_files);
        let totals = encode_rows(&rows, &cut, range, options)?;
        for file in &parity_files {
            let synced = file.draft.as_ref().map_or(Ok(()), Draft::sync);
            synced.map_err(EncodeError::write(&file.placement.place))?;
        }
        same_version()?;
        Ok(result_of(&totals))
    }
}

#[cfg(test)]
mod tests;
