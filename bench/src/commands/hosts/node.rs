//! A node with disks, which are files in a directory, and its client.
//!
//! A connection is for one disk and one piece of work. The client sends the order and what is to be written; the node
//! sends what is read, and a byte when its work is durable.

use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const PORT: u16 = 7000;

/// How long a node may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

const DONE: u8 = b'.';

/// What a disk is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Write what is sent.
    Write,
    /// Send what was written.
    Read,
    /// Take what is sent, for the time of the network alone.
    Discard,
    /// Write as much without being sent it, for the time of the disk alone.
    Fill,
}

const WORKS: [(Work, u8); 4] =
    [(Work::Write, b'w'), (Work::Read, b'r'), (Work::Discard, b'd'), (Work::Fill, b'f')];

/// The beginning of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub(super) work: Work,
    pub(super) disk: u8,
    pub(super) blocks: u64,
    /// Bytes of a block.
    pub(super) block: u64,
}

const ORDER_BYTES: usize = 18;

impl Order {
    fn encode(&self) -> Vec<u8> {
        let letter = WORKS.iter().find(|(work, _)| *work == self.work).map_or(0, |(_, letter)| *letter);
        [&[letter, self.disk][..], &self.blocks.to_le_bytes(), &self.block.to_le_bytes()].concat()
    }

    fn decode(bytes: &[u8; ORDER_BYTES]) -> Result<Order> {
        let (&[letter, disk], rest) = bytes.split_first_chunk().context("too short")?;
        let (blocks, block) = rest.split_first_chunk().context("too short")?;
        let work = WORKS.iter().find(|(_, it)| *it == letter).context("unknown work")?.0;
        let block = u64::from_le_bytes(block.try_into()?);
        ensure!(block <= 1 << 26, "a block of {block} bytes");
        Ok(Order { work, disk, blocks: u64::from_le_bytes(*blocks), block })
    }
}

/// Serves orders until the process is killed.
pub(super) fn serve(address: SocketAddr, directory: &Path) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| address.to_string())?;
    std::thread::scope(|scope| {
        loop {
            let (connection, _) = listener.accept()?;
            scope.spawn(move || {
                if let Err(error) = follow(connection, directory) {
                    errln!("gabion-bench: a node: {error:#}");
                }
            });
        }
    })
}

fn follow(mut connection: TcpStream, directory: &Path) -> Result<()> {
    let mut bytes = [0; ORDER_BYTES];
    connection.read_exact(&mut bytes)?;
    let order = Order::decode(&bytes)?;
    let path = directory.join(format!("disk{}", order.disk));
    let mut block = vec![0x5a; usize::try_from(order.block)?];
    let mut file = match order.work {
        Work::Read => Some(File::open(&path)?),
        Work::Write | Work::Fill => Some(File::create(&path)?),
        Work::Discard => None,
    };
    for _ in 0..order.blocks {
        match (order.work, &mut file) {
            (Work::Read, Some(file)) => {
                file.read_exact(&mut block)?;
                connection.write_all(&block)?;
            }
            (Work::Fill, Some(file)) => file.write_all(&block)?,
            (_, file) => {
                connection.read_exact(&mut block)?;
                file.iter_mut().try_for_each(|file| file.write_all(&block))?;
            }
        }
    }
    if order.work != Work::Read {
        file.iter().try_for_each(File::sync_all)?;
    }
    Ok(connection.write_all(&[DONE])?)
}

/// Has a node work: `next` gives the blocks to be sent, `take` gets those that are read.
pub(super) fn run(
    address: SocketAddr,
    order: Order,
    mut next: impl FnMut() -> Result<Arc<Vec<u8>>>,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut connection = connect(address)?;
    connection.write_all(&order.encode())?;
    let mut block = vec![0; usize::try_from(order.block)?];
    for _ in 0..order.blocks {
        match order.work {
            Work::Write | Work::Discard => connection.write_all(&next()?)?,
            Work::Read => {
                connection.read_exact(&mut block)?;
                take(&block)?;
            }
            Work::Fill => {}
        }
    }
    let mut done = [0];
    connection.read_exact(&mut done)?;
    if done != [DONE] {
        bail!("a node answered {done:?}");
    }
    Ok(())
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(connection) => return Ok(connection),
            Err(error) if began.elapsed() > PATIENCE => return Err(error).context(address.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
