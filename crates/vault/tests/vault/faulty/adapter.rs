//! Storage adapter that injects faults by plan.

use gabion_vault::coder::Coders;
use gabion_vault::format::{FileId, Metadata};
use gabion_vault::geometry::Run;
use gabion_vault::storage::{
    Content, Fault, Folder, IsRight, Layout, LayoutError, OpenForRepair, ParityPlacement, RedundancyLocation,
    Repairable, Repository, Storage, Target,
};
use gabion_vault::tree::{Names, Stat, join};
use gabion_vault::world::Timestamp;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Operation in which a fault is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    Folder,
    Find,
    Open,
    Stat,
    Read,
    OpenForRepair,
    Write,
    SetSize,
    Finish,
}

/// Injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InjectedFault {
    /// Read error of the medium.
    Eio,
    /// The target does not answer.
    Timeout,
    /// Fewer bytes than the file's size.
    Short,
    /// The file has another version than a moment ago.
    Another,
    /// Corrupt bytes without an error.
    Rot,
}

pub(super) type Rule = Box<dyn FnMut(Point, &[u8]) -> Option<InjectedFault> + Send>;

/// Plan of faults.
#[derive(Clone)]
pub(super) struct Plan(pub(super) Arc<Mutex<Rule>>);

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plan")
    }
}

impl Plan {
    pub(super) fn set(&self, rule: impl FnMut(Point, &[u8]) -> Option<InjectedFault> + Send + 'static) {
        *self.0.lock().unwrap() = Box::new(rule);
    }

    /// Removes all faults.
    pub(super) fn clear(&self) {
        self.set(|_, _| None);
    }

    fn ask(&self, point: Point, path: &[u8]) -> Option<InjectedFault> {
        (self.0.lock().unwrap())(point, path)
    }

    fn check(&self, point: Point, path: &[u8]) -> io::Result<()> {
        match self.ask(point, path) {
            Some(InjectedFault::Eio | InjectedFault::Timeout) => Err(eio()),
            _ => Ok(()),
        }
    }

    fn stat(&self, point: Point, path: &[u8], stat: Stat) -> io::Result<Stat> {
        match self.ask(point, path) {
            Some(InjectedFault::Another) => Ok(Stat { ctime: stat.ctime + Duration::from_nanos(1), ..stat }),
            Some(_) => Err(eio()),
            None => Ok(stat),
        }
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

/// Storage with injected faults.
#[derive(Debug)]
pub(super) struct Faulty<S> {
    pub(super) inner: S,
    pub(super) plan: Plan,
}

struct FaultyFolder<'a> {
    inner: Box<dyn Folder + 'a>,
    plan: Plan,
    path: Vec<u8>,
}

impl Folder for FaultyFolder<'_> {
    fn names(&self) -> &Names {
        self.inner.names()
    }

    fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        self.plan.check(Point::Stat, &join(&self.path, name))?;
        self.inner.stat(name)
    }
}

#[derive(Debug)]
struct FaultyContent {
    inner: Box<dyn Content>,
    plan: Plan,
    path: Vec<u8>,
}

impl Content for FaultyContent {
    fn stat(&self) -> io::Result<Stat> {
        self.inner.stat()
    }

    fn metadata(&self) -> io::Result<Metadata> {
        self.inner.metadata()
    }

    fn read(&self, run: &Run, row: u64, column: usize, buffer: &mut [u8]) -> Result<usize, Fault> {
        match self.plan.ask(Point::Read, &self.path) {
            Some(InjectedFault::Eio) => Err(Fault::Io(eio())),
            Some(InjectedFault::Timeout) => Err(Fault::Timeout(30_000)),
            Some(InjectedFault::Short) => {
                let got = self.inner.read(run, row, column, buffer)?.saturating_sub(1);
                buffer[got..].fill(0);
                Ok(got)
            }
            Some(InjectedFault::Rot) => {
                let got = self.inner.read(run, row, column, buffer)?;
                buffer[..got].iter_mut().for_each(|byte| *byte ^= 1);
                Ok(got)
            }
            _ => self.inner.read(run, row, column, buffer),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let fault = self.plan.ask(Point::Read, &self.path);
        let got = match fault {
            Some(InjectedFault::Eio) => return Err(Fault::Io(eio())),
            Some(InjectedFault::Timeout) => return Err(Fault::Timeout(30_000)),
            _ => self.inner.read_at(offset, buffer)?,
        };
        match fault {
            Some(InjectedFault::Short) => Ok(got.saturating_sub(1)),
            Some(InjectedFault::Rot) => {
                buffer[..got].iter_mut().for_each(|byte| *byte ^= 1);
                Ok(got)
            }
            _ => Ok(got),
        }
    }

    fn prefetch(&self, run: &Run) {
        self.inner.prefetch(run);
    }

    fn drop_cache(&self) {
        self.inner.drop_cache();
    }
}

struct FaultyRepair {
    inner: Box<dyn Repairable>,
    plan: Plan,
    path: Vec<u8>,
}

impl Repairable for FaultyRepair {
    fn write(&mut self, run: &Run, row: u64, column: usize, bytes: &[u8]) -> io::Result<()> {
        self.plan.check(Point::Write, &self.path)?;
        self.inner.write(run, row, column, bytes)
    }

    fn set_size(&mut self, size: u64) -> io::Result<()> {
        self.plan.check(Point::SetSize, &self.path)?;
        self.inner.set_size(size)
    }

    fn give_way(&mut self) {
        self.inner.give_way();
    }

    fn finish(
        &mut self,
        metadata: &Metadata,
        mtime: Option<Timestamp>,
        is_right: IsRight<'_>,
    ) -> io::Result<(Vec<String>, Stat)> {
        self.plan.check(Point::Finish, &self.path)?;
        self.inner.finish(metadata, mtime, is_right)
    }
}

impl<S: Storage> Storage for Faulty<S> {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn folder(&self, path: &[u8]) -> io::Result<Box<dyn Folder + '_>> {
        self.plan.check(Point::Folder, path)?;
        let (inner, plan) = (self.inner.folder(path)?, self.plan.clone());
        Ok(Box::new(FaultyFolder { inner, plan, path: path.to_vec() }))
    }

    fn find(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        let found = self.inner.find(path)?;
        match found {
            Some(stat) => self.plan.stat(Point::Find, path, stat).map(Some),
            None => self.plan.check(Point::Find, path).map(|()| None),
        }
    }

    fn open(&self, path: &[u8]) -> io::Result<Box<dyn Content>> {
        self.plan.check(Point::Open, path)?;
        let (inner, plan) = (self.inner.open(path)?, self.plan.clone());
        Ok(Box::new(FaultyContent { inner, plan, path: path.to_vec() }))
    }

    fn open_for_repair(&self, path: &[u8], content: Option<Box<dyn Content>>) -> io::Result<OpenForRepair> {
        self.plan.check(Point::OpenForRepair, path)?;
        let (inner, content) = self.inner.open_for_repair(path, content)?;
        let faulty = |inner| -> Box<dyn Content> {
            Box::new(FaultyContent { inner, plan: self.plan.clone(), path: path.to_vec() })
        };
        let repair = FaultyRepair { inner, plan: self.plan.clone(), path: path.to_vec() };
        Ok((Box::new(repair), content.map(faulty)))
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        self.inner.shown(path)
    }

    fn layout(&self, path: &[u8], code: &gabion_engine::Code, block: u64) -> Result<Layout, LayoutError> {
        self.inner.layout(path, code, block)
    }

    fn repositories(&self) -> Vec<Repository> {
        self.inner.repositories()
    }

    fn parity_placements(
        &self,
        path: &[u8],
        code: &gabion_engine::Code,
        layout: &Layout,
    ) -> io::Result<Vec<ParityPlacement>> {
        self.inner.parity_placements(path, code, layout)
    }

    fn identity(&self, path: &[u8]) -> io::Result<Option<FileId>> {
        self.inner.identity(path)
    }

    fn keeps_by_identity(&self) -> bool {
        self.inner.keeps_by_identity()
    }

    fn redundancy_locations(&self, path: &[u8]) -> io::Result<Vec<RedundancyLocation>> {
        self.inner.redundancy_locations(path)
    }

    fn relocate_former_redundancy(&self, path: &[u8], coders: &Coders) -> io::Result<()> {
        self.inner.relocate_former_redundancy(path, coders)
    }

    fn targets(&self) -> Vec<Target> {
        self.inner.targets()
    }
}
