//! Parser of inotify events as the kernel writes them into a buffer. It trusts no length and makes no system call.
//!
//! An event is the number of a watch, a mask, a number that both ends of a rename share, the length of the name, and
//! the name, filled up with zeros. All numbers are the machine's own.

/// Bytes of an event before its name.
const HEAD: usize = 16;

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawEvent<'a> {
    /// The watch; -1 for none.
    pub watch: i32,
    /// Mask of event bits.
    pub mask: u32,
    /// Cookie that both ends of a rename share.
    pub cookie: u32,
    /// The name in the directory; `None` for events of the directory itself. Never `.`, `..`, nor with a `/`.
    pub name: Option<&'a [u8]>,
}

/// One item of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// An event.
    Event(RawEvent<'a>),
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
        let Some((report, others)) = split(rest) else {
            rest = &[];
            return Some(Item::Unreadable);
        };
        rest = others;
        Some(report.map_or(Item::Unreadable, Item::Event))
    })
}

/// The first event, if its name is valid, and the bytes after it.
fn split(bytes: &[u8]) -> Option<(Option<RawEvent<'_>>, &[u8])> {
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok();
    let (watch, mask) = (i32::from_ne_bytes(number(0)?), u32::from_ne_bytes(number(4)?));
    let (cookie, length) = (u32::from_ne_bytes(number(8)?), u32::from_ne_bytes(number(12)?) as usize);
    let name = bytes.get(HEAD..HEAD.checked_add(length)?)?;
    let others = &bytes[HEAD + length..];
    let name = name.split(|&byte| byte == 0).next().filter(|name| !name.is_empty());
    let plain = name.is_none_or(|name| name != b"." && name != b".." && !name.contains(&b'/'));
    Some((plain.then_some(RawEvent { watch, mask, cookie, name }), others))
}

#[cfg(test)]
mod tests {
    use super::{Item, RawEvent, items};
    use proptest::prelude::{any, prop_assert, proptest};

    fn event(watch: i32, mask: u32, cookie: u32, name: &[u8]) -> Vec<u8> {
        let length = if name.is_empty() { 0 } else { (name.len() + 1).next_multiple_of(16) };
        let mut event = watch.to_ne_bytes().to_vec();
        event.extend([mask, cookie, length as u32].iter().flat_map(|number| number.to_ne_bytes()));
        event.extend(name);
        event.resize(16 + length, 0);
        event
    }

    #[test]
    fn events_are_read() {
        let buffer =
            [event(1, 2, 3, b"a\n\xff"), event(-1, 0x4000, 0, b""), event(2, 8, 0, &[b'x'; 255])].concat();
        let expected = [
            Item::Event(RawEvent { watch: 1, mask: 2, cookie: 3, name: Some(b"a\n\xff") }),
            Item::Event(RawEvent { watch: -1, mask: 0x4000, cookie: 0, name: None }),
            Item::Event(RawEvent { watch: 2, mask: 8, cookie: 0, name: Some(&[b'x'; 255]) }),
        ];
        assert_eq!(items(&buffer).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn malformed_events_are_reported_as_unreadable() {
        let good = event(1, 2, 3, b"name");
        assert_eq!(items(&good[..good.len() - 1]).collect::<Vec<_>>(), [Item::Unreadable]);
        assert_eq!(items(&good[..3]).collect::<Vec<_>>(), [Item::Unreadable]);
        for name in [&b"."[..], b"..", b"a/b"] {
            let buffer = [event(1, 2, 3, name), good.clone()].concat();
            let found: Vec<_> = items(&buffer).collect();
            assert_eq!((found.len(), found[0]), (2, Item::Unreadable), "{name:?}");
        }
        let mut long = good.clone();
        long[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(items(&long).collect::<Vec<_>>(), [Item::Unreadable]);
    }

    proptest! {
        #[test]
        fn hostile_bytes_end_and_give_only_plain_names(
            noise in any::<Vec<u8>>(), at in any::<proptest::sample::Index>(), byte in any::<u8>(),
        ) {
            let mut nearly = event(1, 2, 3, b"some name").repeat(3);
            let at = at.index(nearly.len());
            nearly[at] = byte;
            for buffer in [noise, nearly] {
                let mut count = 0;
                for item in items(&buffer) {
                    count += 1;
                    if let Item::Event(RawEvent { name: Some(name), .. }) = item {
                        prop_assert!(!name.is_empty() && name != b"." && name != b"..");
                        prop_assert!(!name.contains(&b'/') && !name.contains(&0));
                    }
                }
                prop_assert!(count <= buffer.len() / 16 + 1);
            }
        }
    }
}
