//! Splitting: a file or a stream becomes k + m shards.

use crate::draft::{Draft, create_directory, publish};
use crate::error::Error;
use crate::format::{
    Content, Header, MAX_NAME, MAX_SHARDS, NameError, SetHasher, SetId, check_name, shard_file_name,
};
use crate::frame::{SEAL_BYTES, Sealer, seal};
use crate::geometry::Geometry;
use crate::pipeline::{Progress, Run, Slots, for_each_stripe};
use crate::sources::{allow_open_files, law_holds};
use gabion_engine::backends::{Extent, Job, PlanKernel};
use gabion_engine::{Code, Signature};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, SeekFrom};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a block unless asked otherwise.
pub const DEFAULT_BLOCK: u64 = 256 << 10;

/// Options of a split.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file; `None` for standard input.
    pub source: Option<PathBuf>,
    /// The code.
    pub code: Code,
    /// The directory for the shards.
    pub out: PathBuf,
    /// Bytes of a block, rounded up to a multiple of the code's granule.
    pub block: u64,
    /// The name to give it, if not its own.
    pub name: Option<Vec<u8>>,
    /// Replace shards that exist.
    pub force: bool,
}

/// A split that could be carried out now.
#[derive(Debug)]
pub struct Plan {
    source: Option<(PathBuf, File, fs::Metadata)>,
    force: bool,
    out: PathBuf,
    /// Content of the headers; the size is 0 for a stream, whose size is known at its end.
    pub content: Content,
    /// The files that will be made, by shard.
    pub shards: Vec<PathBuf>,
}

/// Result of a split.
#[derive(Debug)]
pub struct Report {
    /// Identity of the set.
    pub set: SetId,
    /// Content of the headers.
    pub content: Content,
    /// The shards.
    pub shards: Vec<PathBuf>,
    /// Length of each.
    pub shard_len: u64,
}

impl Plan {
    /// Checks everything that can be checked before the first byte is read.
    ///
    /// # Errors
    /// A source that cannot be read, outputs that exist, sizes and names that cannot be.
    pub fn new(options: &Options) -> Result<Plan, Error> {
        let Options { source, code, out, block, name, force } = options;
        if code.blocks() > MAX_SHARDS {
            let (family, w, k, m) = (code.family().name(), code.field().w(), code.k(), code.m());
            return Err(gabion_engine::Error::ShapeOutOfRange { family, w, k, m, limit: MAX_SHARDS }.into());
        }
        let source = source.as_deref().map(open_source).transpose()?;
        let own_name =
            source.as_ref().and_then(|(path, ..)| path.file_name()).map(|name| name.as_bytes().to_vec());
        let name = name.clone().or(own_name).unwrap_or_else(|| b"stdin".to_vec());
        check_name(&name)?;
        let longest = shard_file_name(&name, code.blocks() as u32 - 1).len();
        if longest > MAX_NAME {
            let limit = MAX_NAME - (longest - name.len());
            return Err(NameError::TooLong { bytes: name.len(), limit }.into());
        }
        if fs::metadata(out).is_ok_and(|there| !there.is_dir()) {
            return Err(Error::io("use", out)(io::ErrorKind::NotADirectory.into()));
        }
        let granule = code.granule() as u64;
        let block = block.div_ceil(granule).saturating_mul(granule);
        let size = source.as_ref().map_or(0, |(_, _, metadata)| metadata.len());
        let sparse = source.as_ref().is_some_and(|(_, file, metadata)| has_holes(file, metadata));
        let content = Content { code: code.clone(), name, size, block, sparse };
        content.geometry()?;
        let shards: Vec<PathBuf> = (0..code.blocks() as u32)
            .map(|index| out.join(OsStr::from_bytes(&shard_file_name(&content.name, index))))
            .collect();
        for path in &shards {
            match fs::symlink_metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("look at", path)(error)),
                Ok(there) => {
                    let same = |(_, _, source): &(PathBuf, File, fs::Metadata)| {
                        (source.dev(), source.ino()) == (there.dev(), there.ino())
                    };
                    if source.as_ref().is_some_and(same) {
                        return Err(Error::OutputIsSource { path: path.clone() });
                    }
                    if !force {
                        return Err(Error::Exists { path: path.clone() });
                    }
                }
            }
        }
        Ok(Plan { source, force: *force, out: out.clone(), content, shards })
    }

    /// Bytes of the source, if that is known.
    pub fn size(&self) -> Option<u64> {
        self.source.as_ref().map(|_| self.content.size)
    }

    /// Carries it out: shards appear all at once, or none does.
    ///
    /// # Errors
    /// Reading, writing, interruption; existing files are unchanged then.
    pub fn run(self, run: &Run<'_>) -> Result<Report, Error> {
        let Plan { source, force, out, mut content, shards } = self;
        create_directory(&out)?;
        allow_open_files(shards.len());
        let mode = source.as_ref().map(|(_, _, metadata)| metadata.mode() & 0o777);
        let drafts = shards.iter().map(|path| Draft::new(path.clone(), mode));
        let drafts = drafts.collect::<Result<Vec<Draft>, Error>>()?;
        (run.progress)(Progress::Pass("split", source.as_ref().map(|_| content.size)));
        // A descriptor of its own: `poll` does not see data in the buffer of the standard library.
        let stdin = Path::new("standard input");
        let stream = io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let (reader, path, waits) = match &source {
            Some((path, file, _)) => (file.try_clone(), path.as_path(), false),
            None => (stream, stdin, true),
        };
        let mut input = Input { reader: reader.map_err(Error::io("read", path))?, path, waits, ended: false };
        let workers = run.workers(content.block * content.code.blocks() as u64);
        let known_size = source.as_ref().map(|_| content.size);
        let coder = Coder::new(&content, known_size, workers, run)?;
        let mut signatures = SetHasher::default();
        let (mut size, mut taken) = (0, 0);
        for_each_stripe(
            workers,
            || Work {
                slots: Slots::new(content.code.blocks(), content.block as usize),
                data: 0,
                signatures: Vec::new(),
            },
            |_, work: &mut Work| {
                run.check()?;
                work.data = input.fill(&mut work.slots, &coder, run)?;
                taken += work.data as u64;
                match &source {
                    // A log that grows as fast as it is read would never end.
                    Some((path, _, before)) if taken > before.len() => {
                        Err(Error::SourceChanged { path: path.clone() })
                    }
                    _ => Ok(work.data > 0),
                }
            },
            |stripe, work| coder.code_and_write(stripe, work, &drafts),
            |_, work| {
                work.signatures.iter().take(content.code.k()).for_each(|signature| signatures.add(signature));
                size += work.data as u64;
                (run.progress)(Progress::Bytes(work.data as u64));
                Ok(())
            },
        )?;
        if let Some((path, file, before)) = &source {
            let after = file.metadata().map_err(Error::io("read", path))?;
            let stamp = |m: &fs::Metadata| (m.len(), m.mtime(), m.mtime_nsec());
            if size != before.len() || stamp(before) != stamp(&after) {
                return Err(Error::SourceChanged { path: path.clone() });
            }
        }
        content.size = size;
        let set = signatures.finish(&content);
        let shard_len = content.geometry()?.body_len() + content.header_len() as u64;
        for (index, draft) in drafts.iter().enumerate() {
            run.check()?;
            write_header(draft, &Header { set, content: content.clone(), index: index as u32 })?;
            // A last frame that was left as a hole ends here.
            draft.file().set_len(shard_len).map_err(draft.failed("write"))?;
            draft.sync()?;
        }
        run.check()?;
        publish(drafts, force)?;
        Ok(Report { set, content, shards, shard_len })
    }
}

/// Puts the header in front of the frames; until then a shard begins with zeros and is none.
pub(crate) fn write_header(draft: &Draft, header: &Header) -> Result<(), Error> {
    let bytes = header.encode().map_err(|error| draft.failed("write")(io::Error::other(error)))?;
    draft.file().write_all_at(&bytes, 0).map_err(draft.failed("write"))
}

fn open_source(path: &Path) -> Result<(PathBuf, File, fs::Metadata), Error> {
    let failed = || Error::io("read", path);
    let kind = fs::metadata(path).map_err(failed())?.file_type();
    if !kind.is_file() {
        let kind = match kind {
            kind if kind.is_dir() => "directory",
            kind if kind.is_fifo() => "pipe",
            kind if kind.is_socket() => "socket",
            kind if kind.is_block_device() => "block device",
            _ => "device",
        };
        return Err(Error::NotRegular { path: path.to_owned(), kind });
    }
    // Should a pipe have taken its place just now, do not wait for its writer.
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(failed())?;
    let metadata = file.metadata().map_err(failed())?;
    Ok((path.to_owned(), file, metadata))
}

/// Whether a file has holes. Fewer blocks than bytes may also mean compression, so the file system is
/// asked first.
fn has_holes(file: &File, metadata: &fs::Metadata) -> bool {
    let hole = rustix::fs::seek(file, SeekFrom::Hole(0));
    let back = rustix::fs::seek(file, SeekFrom::Start(0));
    match (hole, back) {
        (Ok(hole), Ok(_)) => hole < metadata.len(),
        _ => metadata.blocks().saturating_mul(512) < metadata.len(),
    }
}

/// One stripe on its way.
struct Work {
    slots: Slots,
    /// Bytes of the file in it.
    data: usize,
    signatures: Vec<Signature>,
}

struct Input<'a> {
    reader: File,
    path: &'a Path,
    /// A stream may let us wait for ever, so it is asked before it is read.
    waits: bool,
    /// A short stripe is the last one, even if a terminal, a pipe or a growing file has more data later.
    ended: bool,
}

impl Input<'_> {
    /// Reads the data of one stripe; returns its bytes, 0 at the end of the input.
    fn fill(&mut self, slots: &mut Slots, coder: &Coder, run: &Run<'_>) -> Result<usize, Error> {
        let (k, block) = (coder.content.code.k(), coder.content.block as usize);
        let mut data = 0;
        if self.ended {
            return Ok(0);
        }
        for column in 0..k {
            let got = self.read_full(&mut slots.slot(column)[..block], run)?;
            data += got;
            if got < block {
                self.ended = true;
                break;
            }
        }
        if data > 0 && data < k * block {
            coder.shrink(slots, data);
        }
        Ok(data)
    }

    fn read_full(&mut self, buffer: &mut [u8], run: &Run<'_>) -> Result<usize, Error> {
        let mut got = 0;
        while got < buffer.len() {
            if self.waits {
                wait_for(&self.reader, run)?;
            }
            match self.reader.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(count) => got += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => run.check()?,
                Err(error) => return Err(Error::io("read", self.path)(error)),
            }
        }
        Ok(got)
    }
}

/// Waits until a stream has something or has ended; looks at the stop flag ten times a second.
fn wait_for(stream: &File, run: &Run<'_>) -> Result<(), Error> {
    loop {
        run.check()?;
        let mut ready = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
        let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        match poll(&mut ready, Some(&tenth)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            // Reading reports other errors.
            _ => return Ok(()),
        }
    }
}

struct Coder {
    content: Content,
    geometry: Geometry,
    sealer: Sealer,
    /// None without redundancy.
    encode: Option<PlanKernel>,
    header_len: u64,
}

impl Coder {
    fn new(content: &Content, bytes: Option<u64>, threads: usize, run: &Run<'_>) -> Result<Coder, Error> {
        let code = &content.code;
        let extent = bytes.map_or(Extent::Unknown, Extent::Total);
        let job = Job { code, block: content.block as usize, extent, threads };
        // Stripes run in parallel already: each is computed by one thread.
        let encode = match code.m() {
            0 => None,
            _ => {
                let backend = run.backends.choose(&job)?;
                Some(PlanKernel::new(backend.as_ref(), code.encode_plan()?)?)
            }
        };
        let (geometry, sealer, header_len) =
            (content.geometry()?, Sealer::new()?, content.header_len() as u64);
        Ok(Coder { content: content.clone(), geometry, sealer, encode, header_len })
    }

    /// Spreads the last, short stripe: it was read into full blocks and belongs into shorter ones.
    fn shrink(&self, slots: &mut Slots, data: usize) {
        let (k, block) = (self.content.code.k(), self.content.block as usize);
        let len = self.geometry.block_len_of(data);
        let mut rest = Vec::with_capacity(data);
        for column in 0..k {
            let here = (data - rest.len()).min(block);
            rest.extend_from_slice(slots.block(column, here));
        }
        for column in 0..k {
            let from = (column * len).min(data);
            let piece = &rest[from..data.min(from + len)];
            let slot = slots.slot(column);
            slot[..piece.len()].copy_from_slice(piece);
            slot[piece.len()..len].fill(0);
        }
    }

    fn code_and_write(&self, stripe: u64, work: &mut Work, drafts: &[Draft]) -> Result<(), Error> {
        let (code, len) = (&self.content.code, self.geometry.block_len_of(work.data));
        if let Some(encode) = &self.encode {
            work.slots.apply(encode, len)?;
        }
        let signed = (0..code.blocks()).map(|column| self.sealer.sign(work.slots.block(column, len)));
        work.signatures = signed.collect::<Result<_, _>>()?;
        if law_holds(&self.content) {
            let (data, redundancy) = work.signatures.split_at(code.k());
            if self.sealer.signer().transform(code.redundancy()?, data)? != redundancy {
                return Err(Error::Unsound { stripe });
            }
        }
        let offset = self.header_len + self.geometry.frame_offset(stripe);
        // Workers begin at different files, so that they seldom wait for the lock of one.
        let first = (stripe % 3) as usize * drafts.len() / 3;
        for column in (first..drafts.len()).chain(0..first) {
            let draft = &drafts[column];
            let slot = &mut work.slots.slot(column)[..len + SEAL_BYTES];
            slot[len..].copy_from_slice(&seal(&work.signatures[column], column as u32, stripe));
            let hole = self.content.sparse && slot[..len].iter().all(|&byte| byte == 0);
            let skipped = if hole { len } else { 0 };
            let written = draft.file().write_all_at(&slot[skipped..], offset + skipped as u64);
            written.map_err(draft.failed("write"))?;
        }
        Ok(())
    }
}
