//! What two redundancy files have in common: a key that says which may be equal, and a digest that says which are.

use crate::coder::Coders;
use crate::format::frame::{Check, SIGNATURE_BYTES, toggle};
use crate::format::header::Version;
use crate::redundancy::{Part, read_up_to};
use crate::throttle::Throttle;
use std::io;

/// BLAKE3 of all that equal redundancy has in common.
pub(super) type Digest = [u8; 32];

/// Bytes of frames that are read at once.
const PIECE_BYTES: u64 = 4 << 20;

/// Feeds what headers of equal redundancy have in common. Owners are part of it: otherwise the space that a
/// repository takes would tell a user whether somebody else has a certain file.
fn feed_header(part: &Part, hasher: &mut blake3::Hasher) {
    let header = &part.header;
    let text = format!(
        "{} {} {} {} {:?}",
        header.code.wide_identity(),
        header.code.m(),
        header.strong,
        header.metadata.uid,
        header.geometry,
    );
    hasher.update(&header.generation.size.to_le_bytes()).update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

/// True if redundancy of this form can be shared.
pub(super) fn is_shareable(part: &Part) -> bool {
    let header = &part.header;
    header.version == Version::NEWEST
        && part.head_damage.is_none()
        && header.targets.is_empty()
        && (header.first, header.columns) == (0, header.code.m())
        && part.records.cut().stripes() > 0
}

/// The same for equal redundancy, by its header and the signatures of its first stripe; none if they are damaged.
pub(super) fn key(part: &Part, coders: &Coders) -> Option<Digest> {
    let coder = coders.of_header(&part.header).ok()?;
    let block = part.records.cut().block(0);
    let mut table = vec![0; coder.table_bytes()];
    let got = read_up_to(part.frames(), &mut table, part.records.frame_offset(0, 0) + block).ok()?;
    if got < table.len() || part.frame(&table, 0, 0).is_none() {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    feed_header(part, &mut hasher);
    hasher.update(&table[..table.len() - SIGNATURE_BYTES]);
    Some(*hasher.finalize().as_bytes())
}

/// Digest of the redundancy, the same for equal redundancy of different files. `take` gets each frame, which is intact,
/// with its column and stripe. None if any part of the redundancy is damaged.
pub(super) fn digest(
    part: &Part,
    coders: &Coders,
    throttle: &Throttle<'_>,
    mut take: impl FnMut(&[u8], usize, u64) -> io::Result<()>,
) -> io::Result<Option<Digest>> {
    let Ok(coder) = coders.of_header(&part.header) else { return Ok(None) };
    let (stripes, columns) = (part.records.cut().stripes(), part.header.columns);
    let mut hasher = blake3::Hasher::new();
    feed_header(part, &mut hasher);
    let (mut root, mut buffer, mut first): (Check, _, _) = ([0; SIGNATURE_BYTES], Vec::new(), 0);
    while first < stripes {
        let row = part.records.frame_bytes(first) * columns as u64;
        let count = (PIECE_BYTES / row.max(1)).clamp(1, stripes - first);
        part.read_records(first, count, &mut buffer)?;
        throttle.take(buffer.len() as u64);
        let mut rest = &buffer[..];
        for stripe in first..first + count {
            for column in 0..columns {
                let (frame, behind) = rest.split_at(part.records.frame_bytes(stripe) as usize);
                rest = behind;
                let Some(opened) = part.frame(frame, column, stripe) else { return Ok(None) };
                if !coder.sign(opened.block).is_ok_and(|seal| seal == opened.own()) {
                    return Ok(None);
                }
                toggle(&mut root, opened.check());
                hasher.update(&frame[..frame.len() - SIGNATURE_BYTES]);
                take(frame, column, stripe)?;
            }
        }
        first += count;
    }
    Ok((root == part.header.root).then(|| *hasher.finalize().as_bytes()))
}
