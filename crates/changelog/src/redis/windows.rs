//! Windows on a server.

use super::Redis;
use super::answer::Answer;
use super::link::hex;
use super::named;
use crate::change::VersionName;
use crate::entry::Claim;
use crate::error::Result;
use crate::monitors::Monitor;
use crate::windows::{Tick, Windows, Written};

impl Answer {
    fn tick(&self) -> Result<Tick> {
        self.hex().map(Tick)
    }

    fn written(&self) -> Result<Written> {
        let fields = self.list()?;
        let [ranges, windows] = fields.as_slice() else { return Err(self.nonsense()) };
        let name = |bytes: &[u8]| VersionName::try_from(bytes).map_err(|_| self.nonsense());
        let pair = |pair: &[u8]| Ok((name(&pair[..16])?, name(&pair[16..])?));
        let windows = windows.bytes()?.chunks_exact(32).map(pair).collect::<Result<_>>()?;
        Ok(Written { ranges: ranges.ranges()?, windows })
    }
}

impl Windows for Redis {
    fn cover(&self, monitor: &Monitor, covered: Option<Tick>) -> Result<Tick> {
        let covered = covered.map_or(Vec::new(), |tick| hex(tick.0));
        self.link().call("cover", &[monitor.name.0.clone().into_bytes(), covered])?.tick()
    }

    fn distrust(&self, monitor: &Monitor) -> Result<()> {
        self.link().call("distrust", &[monitor.name.0.clone().into_bytes()]).map(drop)
    }

    fn fence(&self) -> Result<Tick> {
        self.link().call("fence", &[])?.tick()
    }

    fn is_covered(&self, tick: Tick) -> Result<bool> {
        self.link().call("is_covered", &[hex(tick.0)])?.flag()
    }

    fn written(&self, claim: &Claim) -> Result<Written> {
        self.link().call("written", &named(claim))?.written()
    }
}
