//! More or fewer redundancy columns for a version of a file that is protected already.
//!
//! A frame does not depend on the other columns, so frames stay when the number of columns changes. Removal reads
//! tables of redundancy only. For an addition the data is read once, compared with its signatures, and only the new
//! columns are computed. Where this is not possible (another version of the file, damage, a family whose columns depend
//! on m, columns that are missing) the file is encoded again.
//!
//! Redundancy files up to [`SMALL_PART`] become drafts with the kept sections. Others are changed in place: headers by
//! a redo file, a section behind the end under the protection of [`redo::begin_append`]. Headers that no longer fit in
//! their place need a draft too.

mod added;

use super::{EncodeError, EncodeOptions, Encoded, Encoder, ParityFilePlan, RedundancyPlan, SMALL_PART};
use crate::coder::Coder;
use crate::format::frame::{Check, toggle};
use crate::format::header::Version;
use crate::format::{Header, Records};
use crate::redundancy::{Draft, Part, read_up_to, redo};
use crate::storage::Content;
use crate::tree::{Stat, stat_of};
use crate::version::is_unchanged;
use added::AddedColumns;
use std::io;
use std::sync::Arc;

/// True if redundancy files of these headers differ at most in the number of columns in use, and the columns that both
/// have consist of the same frames.
pub(super) fn differs_in_columns(was: &Header, now: &Header) -> bool {
    // A file holds the first columns, or one.
    let is_same_place = match (was.targets.is_empty(), now.targets.is_empty()) {
        (true, true) => (was.first, now.first, was.columns) == (0, 0, was.code.m()),
        (false, false) => (was.first, was.columns, now.columns) == (now.first, 1, 1),
        _ => false,
    };
    is_same_place
        && was.version == now.version
        && was.strong == now.strong
        && was.geometry == now.geometry
        && was.code.shares_columns(&now.code)
}

/// Change of one redundancy file, or a new one.
struct Change<'a> {
    plan: &'a ParityFilePlan,
    part: Option<&'a Part>,
    /// Columns of the present file that stay.
    kept: usize,
    header: Header,
    header_bytes: usize,
    records: Records,
    /// None if the present file is changed in place.
    draft: Option<Draft>,
}

impl Change<'_> {
    fn write_error(&self) -> impl Fn(io::Error) -> EncodeError + '_ {
        EncodeError::write(&self.plan.placement.place)
    }

    /// Number of new columns in this file.
    fn added(&self) -> usize {
        self.header.columns - self.kept
    }

    /// The present file that columns are appended to.
    fn appended(&self) -> Option<&Part> {
        self.part.filter(|_| self.draft.is_none() && self.added() > 0)
    }
}

impl Encoder<'_> {
    /// The coder for redundancy of a file whose newest redundancy has this header: redundancy that was made before
    /// codes had room for more columns stays as it is while it suffices.
    pub(super) fn coder_like(
        &self,
        wanted: &Arc<Coder>,
        newest: Option<&Header>,
    ) -> Result<Arc<Coder>, EncodeError> {
        let (now, strong) = (wanted.code(), wanted.is_strong());
        let newest = newest.filter(|it| it.version == Version::NEWEST && it.strong == strong);
        let Some(was) = newest.map(|header| &header.code) else { return Ok(Arc::clone(wanted)) };
        let code = if was.is_like(now) {
            Some((**was).clone())
        } else if was.shares_columns(now) || now.m() > was.room() {
            None
        } else {
            let narrower = was.widest()?.first_columns(now.m())?;
            Some(narrower).filter(|it| it.is_like(now) && it.shares_columns(was))
        };
        Ok(match code {
            Some(code) => self.coders.of_code(&code, strong, Version::NEWEST)?,
            None => Arc::clone(wanted),
        })
    }

    /// Changes the number of redundancy columns, if nothing else is to be done. Returns none if the file has to be
    /// encoded again or needs nothing; everything is as before then. `check` refuses a file that changed meanwhile.
    pub(super) fn change_columns(
        &self,
        plan: &mut RedundancyPlan,
        content: &dyn Content,
        stat: &Stat,
        options: EncodeOptions<'_>,
        check: &dyn Fn() -> Result<(), EncodeError>,
    ) -> Result<Option<Encoded>, EncodeError> {
        let Some(newest) = newest_of_same(plan, stat, options) else { return Ok(None) };
        let Some(mut changes) = begin(plan, &newest)? else { return Ok(None) };
        let appended: Vec<usize> =
            (0..changes.len()).filter(|&at| changes[at].appended().is_some()).collect();
        for change in appended.iter().map(|&at| &changes[at]) {
            let Some(part) = change.appended() else { continue };
            redo::begin_append(&part.place, &part.header, part.header_bytes())
                .map_err(change.write_error())?;
        }
        let result = add(plan, &mut changes, content, options).and_then(|read| {
            let Some(read) = read else { return Ok(None) };
            check()?;
            changes.iter_mut().try_for_each(finish)?;
            Ok(Some(read))
        });
        let read = match result {
            Ok(Some(read)) => read,
            other => {
                for part in appended.iter().filter_map(|&at| changes[at].appended()) {
                    redo::take_back(&part.place, &part.file, &part.header)
                        .map_err(EncodeError::write(&part.place))?;
                }
                return other.map(|_| None);
            }
        };
        let encoded = Encoded {
            id: newest.id,
            stat: *stat,
            protected_at: newest.protected_at,
            code: plan.coder.coding(),
            columns: changes.iter().map(|change| change.header.columns).sum(),
            wanted: plan.coder.code().m(),
            redundancy_bytes: changes.iter().map(|change| change.records.file()).sum(),
            read_bytes: read,
            adopted: false,
            encoded: 0,
            kept: newest.geometry.cut(newest.generation.size).stripes(),
            damage: None,
            unrecoverable: Vec::new(),
            reconstructed: Vec::new(),
            changed: Vec::new(),
            drafts: changes.into_iter().filter_map(|change| change.draft).collect(),
            published: Vec::new(),
            replaced: Vec::new(),
            obsolete: std::mem::take(&mut plan.obsolete),
        };
        Ok(Some(encoded))
    }
}

fn present(parity_file: &ParityFilePlan) -> Option<&Part> {
    parity_file.old.as_ref().or(parity_file.other_columns.as_ref())
}

/// The newest header of redundancy that describes the present version of the file completely and differs from what is
/// wanted only in the number of columns.
fn newest_of_same(plan: &RedundancyPlan, stat: &Stat, options: EncodeOptions<'_>) -> Option<Header> {
    let parts = || plan.parity_files.iter().filter_map(present);
    let newest = &parts().max_by_key(|part| part.header.revision)?.header;
    let wanted = plan.coder.code();
    if parts().all(|part| part.header.code == *wanted) {
        return None;
    }
    let before = parts().map(|part| part.header.code.m()).min()?;
    let (now, known) = (stat.generation(), options.known);
    let is_removal = parts().any(|part| part.header.code.m() > wanted.m());
    if is_removal && known.is_some_and(|known| known.is_damaged) {
        return None;
    }
    // A new column is made of data that has the right signatures. Removal relies on times: what only restored the mtime
    // is looked at.
    let is_new =
        |file: &ParityFilePlan| present(file).map_or(0, |it| it.header.columns) < file.header.columns;
    let is_read = plan.parity_files.iter().any(is_new);
    let is_recorded = known.is_some_and(|known| known.generation == now);
    let is_same = |(parity_file, part): (&ParityFilePlan, &Part)| {
        let (was, planned) = (&part.header, &parity_file.header);
        was.version == Version::NEWEST
            && was.id == planned.id
            && is_unchanged(was, &now)
            && (is_read || is_recorded || was.generation == now)
            && was.binding == planned.binding
            // A change of all files that was interrupted leaves some with the number of before.
            && (was.revision == newest.revision || was.code != newest.code)
            && part.head_damage.is_none()
            && !part.is_shared()
            && stat_of(&part.file).is_ok_and(|stat| stat.size == part.records.file())
    };
    let of_file = |file| -> Option<(&ParityFilePlan, &Part)> { Some((file, present(file)?)) };
    if !plan.parity_files.iter().filter_map(of_file).all(is_same) {
        return None;
    }
    let is_there = |column: usize| parts().any(|part| part.columns().contains(&column));
    (0..before.min(wanted.m())).all(is_there).then(|| newest.clone())
}

/// The changes of all redundancy files, with drafts; none if the frames that stay are not those of the headers.
fn begin<'a>(plan: &'a RedundancyPlan, newest: &Header) -> Result<Option<Vec<Change<'a>>>, EncodeError> {
    let mut changes = Vec::new();
    for parity_file in &plan.parity_files {
        let part = present(parity_file);
        let kept = part.map_or(0, |part| part.header.columns.min(parity_file.header.columns));
        let root = match part {
            Some(part) if kept < part.header.columns => match root_of_kept(part, kept) {
                Some(root) => root,
                None => return Ok(None),
            },
            Some(part) => part.header.root,
            None => [0; 16],
        };
        let header = Header {
            root,
            protected_at: newest.protected_at,
            extensions: newest.extensions.clone(),
            ..parity_file.header.clone()
        };
        let at_least = part.map_or(0, Part::header_bytes);
        let place = &parity_file.placement.place;
        let write = EncodeError::write(place);
        let header_bytes = header.encode(at_least).map_err(|error| write(io::Error::other(error)))?.len();
        let records = Records::new(&header, header_bytes);
        let is_large = |part: &Part| part.records.file().max(records.file()) > SMALL_PART;
        let in_place = part.is_some_and(|part| header_bytes == at_least && is_large(part));
        let draft = (!in_place).then(|| Draft::of_length(place.clone(), records.file())).transpose();
        let draft = draft.map_err(&write)?;
        drop(write);
        changes.push(Change { plan: parity_file, part, kept, header, header_bytes, records, draft });
    }
    Ok(Some(changes))
}

/// Sum of the checks of the first `kept` columns of a file, if all its frames are those that its header describes.
fn root_of_kept(part: &Part, kept: usize) -> Option<Check> {
    let stripes = part.records.cut().stripes();
    let (mut all, mut sum) = ([0; 16], [0; 16]);
    let mut take = |at: usize, stripe: u64, bytes: &[u8]| -> Option<()> {
        let check = part.frame(bytes, part.header.first + at, stripe).map(|frame| *frame.check())?;
        toggle(&mut all, &check);
        if at < kept {
            toggle(&mut sum, &check);
        }
        Some(())
    };
    let mut buffer = Vec::new();
    if part.records.file() <= SMALL_PART {
        part.read_records(0, stripes, &mut buffer).ok()?;
        let mut rest = &buffer[..];
        for (stripe, at) in
            (0..stripes).flat_map(|stripe| (0..part.header.columns).map(move |at| (stripe, at)))
        {
            let (frame, behind) = rest.split_at_checked(part.records.frame_bytes(stripe) as usize)?;
            take(at, stripe, frame)?;
            rest = behind;
        }
    } else {
        for (at, stripe) in
            (0..part.header.columns).flat_map(|at| (0..stripes).map(move |stripe| (at, stripe)))
        {
            read_table(part, at, stripe, &mut buffer)?;
            take(at, stripe, &buffer)?;
        }
    }
    (all == part.header.root).then_some(sum)
}

/// Reads the table of a frame; none if it is not there.
fn read_table(part: &Part, at: usize, stripe: u64, table: &mut Vec<u8>) -> Option<()> {
    let (frame, block) = (part.records.frame_bytes(stripe), part.records.cut().block(stripe));
    table.resize((frame - block) as usize, 0);
    let got = read_up_to(&part.file, table, part.records.frame_offset(at, stripe) + block);
    got.is_ok_and(|got| got == table.len()).then_some(())
}

/// Computes the new columns from the data and writes them. Returns the bytes that were read; none if the data is not
/// what the redundancy describes.
fn add(
    plan: &RedundancyPlan,
    changes: &mut [Change<'_>],
    content: &dyn Content,
    options: EncodeOptions<'_>,
) -> Result<Option<u64>, EncodeError> {
    if changes.iter().all(|change| change.added() == 0) {
        return Ok(Some(0));
    }
    let Some(cut) = changes.first().map(|change| *change.records.cut()) else { return Ok(Some(0)) };
    let added = AddedColumns::new(&plan.coder, content, cut, changes).run(options)?;
    let Some(added) = added else { return Ok(None) };
    for (change, root) in changes.iter_mut().zip(&added.roots) {
        toggle(&mut change.header.root, root);
    }
    Ok(Some(added.read))
}

/// Completes a draft, or makes the change in place.
fn finish(change: &mut Change<'_>) -> Result<(), EncodeError> {
    let write = change.write_error();
    match (&change.draft, change.part) {
        (Some(draft), part) => {
            if let Some(part) = part.filter(|_| change.kept > 0) {
                let (from, to) = (part.records.frame_offset(0, 0), change.records.frame_offset(0, 0));
                let bytes = part.records.frame_offset(change.kept, 0) - from;
                draft.copy(&part.file, from, to, bytes).map_err(&write)?;
            }
            draft.write_headers(&change.header, change.header_bytes).map_err(&write)
        }
        (None, Some(part)) => {
            if change.added() > 0 {
                part.file.sync_all().map_err(&write)?;
            }
            let header = change.header.encode(change.header_bytes).map_err(io::Error::other);
            let header = header.map_err(&write)?;
            let writes = [(change.records.trailer(), header.clone()), (0, header)];
            redo::update(&part.place, &part.file, &change.header, &writes).map_err(&write)
        }
        (None, None) => Ok(()),
    }
}
