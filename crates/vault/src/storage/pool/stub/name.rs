//! What stands at a name of a file that has several: which file it is. The file's stub lies apart.

use super::{Fields, HEAD, StubError, open, seal, unhex};
use crate::format::FileId;

/// The version of a stub that only names a file.
const VERSION_NAME: u32 = 5;

const EXPLANATION: &str = "one of several names of a file; read it with: gabion pool get";

/// One of several names of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameOfShared {
    /// The file.
    pub(crate) id: FileId,
    /// Counts changes at this path, as that of a stub; never more than the revision of the file.
    pub(crate) revision: u64,
}

impl NameOfShared {
    /// The text that stands at the name.
    pub(crate) fn encode(&self) -> String {
        let NameOfShared { id, revision } = self;
        seal(format!("{HEAD} {VERSION_NAME}: {EXPLANATION}\nid = {id}\nrevision = {revision}\n"))
    }

    /// Reads the text; nothing if it is that of a stub.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<NameOfShared>, StubError> {
        let (version, body) = open(bytes)?;
        if version != VERSION_NAME {
            return Ok(None);
        }
        let mut fields = Fields(body.lines());
        fields.0.next();
        let id = unhex(fields.text("id")?).and_then(|id| id.try_into().ok()).ok_or(StubError::Field("id"))?;
        let name = NameOfShared { id: FileId(id), revision: fields.number("revision")? };
        match fields.0.next() {
            None => Ok(Some(name)),
            Some(_) => Err(StubError::Field("check")),
        }
    }
}
