//! Hard link stubs: the entry at each name of a file that has several. It holds the identity of the file; the stub of
//! the file lies apart.

use super::{Fields, HEAD, StubError, open, seal, unhex};
use crate::format::FileId;

/// Version of a hard link stub.
const VERSION_NAME: u32 = 5;

const EXPLANATION: &str = "one of several names of a file; read it with: gabion pool get";

/// One of several names of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkStub {
    /// Identity of the file.
    pub(crate) id: FileId,
    /// Counts changes at this path, like that of a stub; never higher than the revision of the file.
    pub(crate) revision: u64,
}

impl LinkStub {
    /// Encodes the entry.
    pub(crate) fn encode(&self) -> String {
        let LinkStub { id, revision } = self;
        seal(format!("{HEAD} {VERSION_NAME}: {EXPLANATION}\nid = {id}\nrevision = {revision}\n"))
    }

    /// Decodes the entry; none if the text is that of a stub.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<LinkStub>, StubError> {
        let (version, body) = open(bytes)?;
        if version != VERSION_NAME {
            return Ok(None);
        }
        let mut fields = Fields(body.lines());
        fields.0.next();
        let id = unhex(fields.text("id")?).and_then(|id| id.try_into().ok()).ok_or(StubError::Field("id"))?;
        let name = LinkStub { id: FileId(id), revision: fields.number("revision")? };
        match fields.0.next() {
            None => Ok(Some(name)),
            Some(_) => Err(StubError::Field("check")),
        }
    }
}
