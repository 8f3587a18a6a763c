//! POSIX access control lists, in the kernel's encoding as extended attributes.
//!
//! The kernel enforces them; this module keeps them consistent: setting the mode updates the entries of the list and
//! the other way round, and new entries of a directory inherit its default list.

/// Attribute of the access list.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";

/// Attribute of the default list, which new entries of a directory inherit.
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OF_FILE: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// An access control list, with its entries in the kernel's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List(Vec<Entry>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    rights: u16,
    id: u32,
}

impl List {
    pub(super) fn decode(bytes: &[u8]) -> Option<List> {
        let (version, entries) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != VERSION || entries.is_empty() || entries.len() % 8 != 0 {
            return None;
        }
        let entry = |bytes: &[u8]| {
            let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            Entry { tag: number(0), rights: number(2), id }
        };
        let list = List(entries.chunks(8).map(entry).collect());
        let once = |tag| list.0.iter().filter(|entry| entry.tag == tag).count() == 1;
        let known = |entry: &Entry| [OWNER, USER, GROUP_OF_FILE, GROUP, MASK, OTHERS].contains(&entry.tag);
        let whole = once(OWNER) && once(GROUP_OF_FILE) && once(OTHERS);
        (whole && list.0.iter().all(|entry| known(entry) && entry.rights <= 7)).then_some(list)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for Entry { tag, rights, id } in &self.0 {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// True if it has entries that a mode cannot express.
    pub(super) fn is_extended(&self) -> bool {
        self.0.iter().any(|entry| [USER, GROUP, MASK].contains(&entry.tag))
    }

    /// The entry that corresponds to the group bits of the mode.
    fn group_tag(&self) -> u16 {
        if self.0.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OF_FILE }
    }

    fn rights(&self, tag: u16) -> u32 {
        self.0.iter().find(|entry| entry.tag == tag).map_or(0, |entry| u32::from(entry.rights))
    }

    /// The mode that corresponds to the list; bits beyond 0o777 are kept.
    pub(super) fn mode(&self, before: u32) -> u32 {
        let bits = self.rights(OWNER) << 6 | self.rights(self.group_tag()) << 3 | self.rights(OTHERS);
        before & !0o777 | bits
    }

    fn each(&self, change: impl Fn(u16, u16) -> u16) -> List {
        let entries = self.0.iter();
        List(entries.map(|entry| Entry { rights: change(entry.tag, entry.rights), ..*entry }).collect())
    }

    /// The list after the mode was changed.
    pub(super) fn with_mode(&self, mode: u32) -> List {
        let group = self.group_tag();
        self.each(|tag, rights| match tag {
            OWNER => (mode >> 6 & 7) as u16,
            OTHERS => (mode & 7) as u16,
            tag if tag == group => (mode >> 3 & 7) as u16,
            _ => rights,
        })
    }

    /// List and mode of an entry created with `mode` in a directory with this default list.
    pub(super) fn handed_down(&self, mode: u32) -> (List, u32) {
        let group = self.group_tag();
        let list = self.each(|tag, rights| match tag {
            OWNER => rights & (mode >> 6 & 7) as u16,
            OTHERS => rights & (mode & 7) as u16,
            tag if tag == group => rights & (mode >> 3 & 7) as u16,
            _ => rights,
        });
        let mode = list.mode(mode);
        (list, mode)
    }
}

/// Extended attributes of a file or directory.
pub(super) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// The list stored under a name.
pub(super) fn list_of(attributes: &Attributes, name: &[u8]) -> Option<List> {
    attributes.iter().find(|(known, _)| known == name).and_then(|(_, value)| List::decode(value))
}

/// Stores or removes a list. An access list that the mode expresses is not stored.
pub(super) fn put(attributes: &mut Attributes, name: &[u8], list: Option<&List>) {
    attributes.retain(|(known, _)| known != name);
    if let Some(list) = list.filter(|list| name == DEFAULT || list.is_extended()) {
        attributes.push((name.to_vec(), list.encode()));
    }
}

/// Attributes and mode of an entry created with `mode` in a directory with these attributes.
pub(super) fn inherit(directory: &Attributes, mode: u32, is_directory: bool) -> (Attributes, u32) {
    let Some(default) = list_of(directory, DEFAULT) else { return (Vec::new(), mode) };
    let (list, mode) = default.handed_down(mode);
    let mut attributes = Vec::new();
    put(&mut attributes, ACCESS, Some(&list));
    if is_directory {
        put(&mut attributes, DEFAULT, Some(&default));
    }
    (attributes, mode)
}

#[cfg(test)]
mod tests {
    use super::{ACCESS, DEFAULT, Entry, List, inherit, list_of, put};

    fn list(entries: &[(u16, u16, u32)]) -> List {
        List(entries.iter().map(|&(tag, rights, id)| Entry { tag, rights, id }).collect())
    }

    #[test]
    fn modes_and_lists_agree() {
        let small = list(&[(1, 7, u32::MAX), (4, 5, u32::MAX), (0x20, 0, u32::MAX)]);
        assert_eq!((small.mode(0o4000), small.is_extended()), (0o4750, false));
        let large = list(&[(1, 6, 0), (2, 7, 12), (4, 4, 0), (0x10, 6, 0), (0x20, 4, 0)]);
        assert_eq!((large.mode(0), large.is_extended()), (0o664, true));
        let changed = large.with_mode(0o1710);
        assert_eq!(changed.mode(0), 0o710);
        assert_eq!(changed, list(&[(1, 7, 0), (2, 7, 12), (4, 4, 0), (0x10, 1, 0), (0x20, 0, 0)]));
        assert_eq!(List::decode(&large.encode()), Some(large.clone()));
        assert_eq!(List::decode(&large.encode()[..20]), None);
        assert_eq!(List::decode(&list(&[(1, 7, 0)]).encode()), None);
    }

    #[test]
    fn entries_inherit_the_default_list() {
        let default = list(&[(1, 7, 0), (2, 7, 12), (4, 5, 0), (0x10, 7, 0), (0x20, 5, 0)]);
        let mut directory = Vec::new();
        put(&mut directory, DEFAULT, Some(&default));
        let (attributes, mode) = inherit(&directory, 0o640, false);
        assert_eq!(mode, 0o640);
        let made = list_of(&attributes, ACCESS).unwrap();
        assert_eq!(made, list(&[(1, 6, 0), (2, 7, 12), (4, 5, 0), (0x10, 4, 0), (0x20, 0, 0)]));
        assert_eq!(list_of(&attributes, DEFAULT), None);
        let (attributes, mode) = inherit(&directory, 0o777, true);
        assert_eq!((mode, list_of(&attributes, DEFAULT)), (0o775, Some(default)));
        assert_eq!(inherit(&Vec::new(), 0o600, true), (Vec::new(), 0o600));
    }
}
