//! Parser of fanotify events as the kernel writes them into a buffer. It trusts no length and makes no system call.
//!
//! An event is 24 bytes (length of all of it, version, a reserved byte, length of this part, mask, descriptor, process)
//! and then records, each with its type and length: the identity of the file system, a handle (length, kind, bytes),
//! and for some types a name that ends with a zero. All numbers are the machine's own.

/// Longest handle that a file system gives.
pub const MAX_HANDLE: usize = 128;

/// Bytes of an event before its records.
const HEAD: usize = 24;

/// The version of events that is read here.
const VERSION: u8 = 3;

/// File handle of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle<'a> {
    /// Handle type, defined by the file system.
    pub kind: i32,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Handle<'_> {
    /// Kind and bytes, as a key of a map.
    pub(super) fn key(self) -> Box<[u8]> {
        [&self.kind.to_ne_bytes()[..], self.bytes].concat().into()
    }
}

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryName<'a> {
    /// The directory.
    pub directory: Handle<'a>,
    /// The name, without its zero; never empty, `.`, `..`, nor with a `/`.
    pub name: &'a [u8],
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawEvent<'a> {
    /// Mask of event bits.
    pub mask: u64,
    /// The entry, unless the event is a rename.
    pub place: Option<EntryName<'a>>,
    /// The old name.
    pub from: Option<EntryName<'a>>,
    /// The new name.
    pub to: Option<EntryName<'a>>,
}

/// One item of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// An event.
    Event(RawEvent<'a>),
    /// Events were lost.
    Overflow,
    /// An event that cannot be parsed. If its length is invalid, it is the last item.
    Unreadable,
}

/// The events of a buffer.
pub fn items(buffer: &[u8]) -> impl Iterator<Item = Item<'_>> {
    let mut rest = buffer;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = number::<4>(rest, 0).map(u32::from_ne_bytes).map(|length| length as usize);
        let Some(length) = length.filter(|&length| length >= HEAD && length <= rest.len()) else {
            rest = &[];
            return Some(Item::Unreadable);
        };
        let (event, others) = rest.split_at(length);
        rest = others;
        Some(item(event).unwrap_or(Item::Unreadable))
    })
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn item(event: &[u8]) -> Option<Item<'_>> {
    let head = u16::from_ne_bytes(number(event, 6)?) as usize;
    let mask = u64::from_ne_bytes(number(event, 8)?);
    if event[4] != VERSION || head < HEAD {
        return None;
    }
    if mask & libc::FAN_Q_OVERFLOW != 0 {
        return Some(Item::Overflow);
    }
    let mut report = RawEvent { mask, place: None, from: None, to: None };
    let mut records = event.get(head..)?;
    while !records.is_empty() {
        let length = u16::from_ne_bytes(number(records, 2)?) as usize;
        // A length of zero would loop for ever.
        let record = records.get(..length).filter(|record| record.len() >= 4)?;
        match record[0] {
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME => report.place = place(record)?,
            libc::FAN_EVENT_INFO_TYPE_OLD_DFID_NAME => report.from = place(record)?,
            libc::FAN_EVENT_INFO_TYPE_NEW_DFID_NAME => report.to = place(record)?,
            // The file itself, or types that later kernels add.
            _ => {}
        }
        records = &records[length..];
    }
    Some(Item::Event(report))
}

/// Directory and name of a record; an inner `None` for an event of the directory itself.
fn place(record: &[u8]) -> Option<Option<EntryName<'_>>> {
    // Type, length, and the identity of the file system come before the handle.
    let (size_at, kind_at, bytes_at) = (12, 16, 20);
    let size = u32::from_ne_bytes(number(record, size_at)?) as usize;
    let kind = i32::from_ne_bytes(number(record, kind_at)?);
    if size > MAX_HANDLE {
        return None;
    }
    let bytes = record.get(bytes_at..bytes_at + size)?;
    let name = record.get(bytes_at + size..)?;
    let name = &name[..name.iter().position(|&byte| byte == 0)?];
    match name {
        b"." => Some(None),
        b"" | b".." => None,
        name if name.contains(&b'/') => None,
        name => Some(Some(EntryName { directory: Handle { kind, bytes }, name })),
    }
}

#[cfg(test)]
mod tests;
