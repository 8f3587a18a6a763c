//! The journal on a server.

use super::Redis;
use super::answer::Answer;
use crate::error::{Error, Result};
use crate::journal::{Journal, Mark, NAME, Reading, Record};
use gabion_platform::world::unique_id;
use std::sync::Arc;

impl Journal for Redis {
    fn append(&self, bytes: &[u8], after: Option<Option<&Mark>>) -> Result<Option<Mark>> {
        let name = unique_id()
            .map_err(|reason| Error::System { doing: "name a record", reason: Arc::new(reason) })?;
        let last = match after {
            None => Vec::new(),
            Some(None) => b"=".to_vec(),
            Some(Some(mark)) => [format!("={}:", mark.position).as_bytes(), &mark.name].concat(),
        };
        let mut link = self.link();
        let request = link.next_request();
        let answer = link.call("append", &[request, last, [&name[..], bytes].concat()])?;
        match answer.text()?.as_str() {
            "no" => Ok(None),
            _ => Ok(Some(Mark { position: answer.number()?, name })),
        }
    }

    fn read(&self, after: Option<&Mark>) -> Result<Reading> {
        let from = after.map_or(Vec::new(), |mark| mark.position.to_string().into_bytes());
        let answer = self.link().call("read", &[from])?;
        let found = answer.list()?;
        let Some((first, found)) = found.split_first() else { return Err(answer.nonsense()) };
        let pairs = found.chunks(2).map(|pair| match pair {
            [position, bytes] => record(position, bytes),
            _ => Err(answer.nonsense()),
        });
        let mut records = pairs.collect::<Result<Vec<Record>>>()?;
        let is_known = match (after, records.first()) {
            (None, None) => first.number()? == 1,
            (None, Some(record)) => record.mark.position == first.number()?,
            (Some(_), None) => false,
            (Some(mark), Some(record)) => record.mark == *mark,
        };
        if !is_known {
            return Ok(Reading::Unknown);
        }
        if after.is_some() {
            records.remove(0);
        }
        Ok(Reading::Records(records))
    }

    fn begin_at(&self, first: &Mark) -> Result<()> {
        let arguments = [first.position.to_string().into_bytes(), first.name.to_vec()];
        // A record that is gone was dropped by another host, which began at a later one.
        self.link().call("begin_at", &arguments).map(drop)
    }

    fn size(&self) -> Result<u64> {
        self.link().call("size", &[])?.number()
    }
}

fn record(position: &Answer, bytes: &Answer) -> Result<Record> {
    let (name, content) = bytes.bytes()?.split_at_checked(NAME).ok_or_else(|| bytes.nonsense())?;
    let name = name.try_into().map_err(|_| bytes.nonsense())?;
    Ok(Record { mark: Mark { position: position.number()?, name }, bytes: content.to_vec() })
}
