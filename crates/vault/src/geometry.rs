//! Geometry: how a file is cut into stripes. One rule serves both kinds of storage.
//!
//! A file is cut into *segments*, a segment into k contiguous *columns*, and a column into *rows* of one block. Stripe
//! s is row s of its segment: one block of every column.
//!
//! ```text
//! file      | segment 0                                   | segment 1 ...
//!           | column 0      | column 1      | column 2    |
//! rows      | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3
//! stripe 1        *               *               *
//! ```
//!
//! With many rows, damage of neighbouring bytes (an overwritten region, a torn write, a truncation) affects few columns
//! of many stripes instead of all columns of a few, so m of the k columns of a segment may be lost. With one row the
//! columns are those of a file striped over k targets. A growing file keeps its full segments.

use std::ops::Range;

/// Block sizes are multiples of this, and of the granule of the code.
pub const BLOCK_UNIT: u64 = 64;

/// Largest block size.
pub const MAX_BLOCK: u64 = 1 << 26;

/// Largest file: the operating system uses signed offsets.
pub const MAX_SIZE: u64 = i64::MAX as u64;

/// Maximum number of rows of a segment.
pub const MAX_ROWS: u64 = 1 << 20;

/// How the last, partial segment is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tail {
    /// Its columns have equal lengths, so a small file has small blocks in all columns.
    Balanced,
    /// Blocks continue round-robin over the columns, for files striped over targets. Segments have one row.
    Striped,
}

/// The rule by which a file is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    k: u64,
    block: u64,
    rows: u64,
    tail: Tail,
    unit: u64,
}

/// An invalid rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A block size that is zero, too large, or not a multiple of the unit.
    #[error("a block of {block} bytes: it has to be a multiple of {unit}, from {unit} to {MAX_BLOCK}")]
    Block {
        /// Requested size.
        block: u64,
        /// Required unit.
        unit: u64,
    },
    /// No columns, or more than a stripe may have.
    #[error("{0} columns are not between 1 and 65536")]
    Columns(u64),
    /// No rows, too many, or more than one in a striped file.
    #[error("{0} rows in a segment are not between 1 and {MAX_ROWS} (1 in striped files)")]
    Rows(u64),
}

impl Geometry {
    /// Rule for `k` columns of blocks of `block` bytes, with `rows` per segment. `granule` is that of the code.
    ///
    /// # Errors
    /// See [`GeometryError`].
    pub fn new(k: u64, block: u64, rows: u64, tail: Tail, granule: u64) -> Result<Geometry, GeometryError> {
        let unit = unit(granule);
        if k == 0 || k > 1 << 16 {
            return Err(GeometryError::Columns(k));
        }
        if block == 0 || block > MAX_BLOCK || !block.is_multiple_of(unit) {
            return Err(GeometryError::Block { block, unit });
        }
        if rows == 0 || rows > MAX_ROWS || (tail == Tail::Striped && rows != 1) {
            return Err(GeometryError::Rows(rows));
        }
        Ok(Geometry { k, block, rows, tail, unit })
    }

    /// Number of data columns.
    pub fn k(&self) -> usize {
        self.k as usize
    }

    /// Block size in full segments.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Rows of a full segment.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How the last segment is cut.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Bytes of a full segment.
    fn segment(&self) -> u64 {
        self.k * self.rows * self.block
    }

    /// Cut of a file of `size` bytes.
    pub fn cut(&self, size: u64) -> Cut {
        let full = size / self.segment();
        let rest = size % self.segment();
        let (tail_rows, tail_block) = match self.tail {
            _ if rest == 0 => (0, 0),
            Tail::Striped => (1, round_up(rest.min(self.block), self.unit)),
            Tail::Balanced => {
                let rows = rest.div_ceil(self.k * self.block);
                (rows, round_up(rest.div_ceil(self.k * rows), self.unit))
            }
        };
        Cut { geometry: *self, size, full_stripes: full * self.rows, tail_rows, tail_block }
    }
}

/// Smallest block size chosen for the sake of more rows: the sector size of disks.
const SMALLEST_CUT: u64 = 4 << 10;

/// Block size that gives a file of `size` bytes the requested number of rows, up to `largest`.
///
/// Contiguous damage makes every block unusable that it touches. In a file with one row, damage longer than m - 1
/// columns may touch m + 1 of them and is irreparable; with n rows it needs m columns minus 1/n. Small files therefore
/// get smaller blocks, but not so small that signatures, 16 (k + 1) bytes per redundancy block, exceed a thirtieth of
/// it.
pub fn block_for(size: u64, k: u64, rows: u64, largest: u64, granule: u64) -> u64 {
    let unit = unit(granule);
    let smallest = round_up(SMALLEST_CUT.max(512 * k), unit);
    round_up(size.div_ceil(rows * k), unit).max(smallest).min(largest)
}

/// Unit of block sizes for a code with the given granule.
fn unit(granule: u64) -> u64 {
    let (mut divisor, mut rest) = (granule.max(1), BLOCK_UNIT);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    granule.max(1) / divisor * BLOCK_UNIT
}

fn round_up(bytes: u64, unit: u64) -> u64 {
    bytes.div_ceil(unit) * unit
}

/// A file of one size, cut by a [`Geometry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    geometry: Geometry,
    size: u64,
    full_stripes: u64,
    tail_rows: u64,
    tail_block: u64,
}

/// Consecutive stripes whose blocks form one piece of the file in each column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First stripe.
    pub first: u64,
    /// Number of stripes.
    pub count: u64,
    /// Block size.
    pub block: u64,
    /// Offset of the piece of column 0.
    start: u64,
    /// Distance between the pieces of adjacent columns.
    stride: u64,
    /// File size.
    size: u64,
}

impl Run {
    /// Range of the file that the run has in `column`; shorter than count × block at the end of the file.
    pub fn piece(&self, column: usize) -> Range<u64> {
        let start = (self.start + column as u64 * self.stride).min(self.size);
        start..(start + self.count * self.block).min(self.size)
    }

    /// Row `row` alone.
    pub fn row(&self, row: u64) -> Run {
        Run { first: self.first + row, count: 1, start: self.start + row * self.block, ..*self }
    }

    /// Range of the file in block `column` of stripe `first + row`.
    pub fn cell(&self, row: u64, column: usize) -> Range<u64> {
        let start = (self.start + column as u64 * self.stride + row * self.block).min(self.size);
        start..(start + self.block).min(self.size)
    }

    /// Range of the file in the first `columns` blocks of stripe `first + row`, if these blocks are adjacent in the
    /// file.
    pub fn stripe(&self, row: u64, columns: usize) -> Option<Range<u64>> {
        let start = self.cell(row, 0).start;
        (self.stride == self.block).then(|| start..(start + columns as u64 * self.block).min(self.size))
    }

    /// Length of a column's piece, padding included.
    pub fn bytes(&self) -> u64 {
        self.count * self.block
    }
}

impl Cut {
    /// File size.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Number of stripes.
    pub fn stripes(&self) -> u64 {
        self.full_stripes + self.tail_rows
    }

    /// Number of stripes in full segments, whose cut does not change while the file grows.
    pub fn full_stripes(&self) -> u64 {
        self.full_stripes
    }

    /// Block size of `stripe`.
    pub fn block(&self, stripe: u64) -> u64 {
        if stripe < self.full_stripes { self.geometry.block } else { self.tail_block }
    }

    /// The run that starts with `stripe`: at most `limit` stripes (at least one), all in one segment.
    pub fn run(&self, stripe: u64, limit: u64) -> Run {
        let Geometry { rows, block, tail, .. } = self.geometry;
        let segment = stripe.min(self.full_stripes) / rows;
        let row = stripe - segment * rows;
        let (rows, block) =
            if stripe < self.full_stripes { (rows, block) } else { (self.tail_rows, self.tail_block) };
        let stride = if tail == Tail::Striped { self.geometry.block } else { rows * block };
        let start = segment * self.geometry.segment() + row * block;
        Run { first: stripe, count: limit.clamp(1, rows - row), block, start, stride, size: self.size }
    }

    /// All runs, of at most `limit` stripes each.
    pub fn runs(&self, limit: u64) -> impl Iterator<Item = Run> + use<> {
        let (cut, mut next) = (*self, 0);
        std::iter::from_fn(move || {
            let run = (next < cut.stripes()).then(|| cut.run(next, limit))?;
            next += run.count;
            Some(run)
        })
    }

    /// Bytes of the file in a range of stripes.
    pub fn bytes_of(&self, stripes: Range<u64>) -> u64 {
        let (mut bytes, mut next) = (0, stripes.start);
        while next < stripes.end {
            let run = self.run(next, stripes.end - next);
            let pieces = (0..self.geometry.k()).map(|column| run.piece(column));
            bytes += pieces.map(|piece| piece.end - piece.start).sum::<u64>();
            next += run.count;
        }
        bytes
    }

    /// Stripe and column of the block with the byte at `offset`.
    pub fn locate(&self, offset: u64) -> (u64, usize) {
        let segment = offset / self.geometry.segment();
        let first = segment * self.geometry.rows;
        let run = self.run(first, MAX_ROWS);
        let column = ((offset - segment * self.geometry.segment()) / run.stride) as usize;
        let row = (offset - run.piece(column).start) / run.block;
        (first + row, column)
    }

    /// Stripes that overlap `range`.
    pub fn stripes_of(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let end = range.end.min(self.size);
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < end {
            let segment = at / self.geometry.segment();
            let base = segment * self.geometry.segment();
            let first = segment * self.geometry.rows;
            let run = self.run(first, MAX_ROWS);
            let column = (at - base) / run.stride;
            let piece = run.piece(column as usize);
            let until = end.min(piece.end).max(at + 1);
            let rows = (at - piece.start) / run.block..(until - piece.start).div_ceil(run.block);
            found.push(first + rows.start..first + rows.end.min(run.count));
            at = until;
        }
        merge(found)
    }
}

/// Sorts and merges ranges.
pub fn merge(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests;
