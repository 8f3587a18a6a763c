use super::{EntryName, Handle, Item, MAX_HANDLE, RawEvent, items};
use proptest::prelude::{Strategy, any, prop_assert, proptest};

fn record(kind: u8, handle: &[u8], name: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend((handle.len() as u32).to_ne_bytes());
    body.extend(1i32.to_ne_bytes());
    body.extend(handle);
    body.extend(name);
    body.push(0);
    body.resize(body.len().next_multiple_of(4), 0);
    let length = (body.len() + 4) as u16;
    [&[kind, 0][..], &length.to_ne_bytes(), &body].concat()
}

fn event(mask: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let records = records.concat();
    let mut event = ((24 + records.len()) as u32).to_ne_bytes().to_vec();
    event.extend([3, 0]);
    event.extend(24u16.to_ne_bytes());
    event.extend(mask.to_ne_bytes());
    event.extend((-1i32).to_ne_bytes());
    event.extend(7i32.to_ne_bytes());
    event.extend(records);
    event
}

const DIRECTORY: Handle<'static> = Handle { kind: 1, bytes: b"12345678" };

#[test]
fn names_and_both_ends_of_a_rename_are_read() {
    let created = event(libc::FAN_CREATE, &[record(2, b"12345678", b"new\nline"), record(1, b"abc", b"")]);
    let renamed = event(
        libc::FAN_RENAME,
        &[
            record(10, b"12345678", b"old \xff"),
            record(12, b"12345678", b"new"),
            record(200, b"", b"later kernel"),
        ],
    );
    let overflow = event(libc::FAN_Q_OVERFLOW, &[]);
    let of_itself = event(libc::FAN_ATTRIB | libc::FAN_ONDIR, &[record(2, b"12345678", b".")]);
    let buffer = [created, renamed, overflow, of_itself].concat();
    let place = |name| Some(EntryName { directory: DIRECTORY, name });
    let nothing = RawEvent { mask: 0, place: None, from: None, to: None };
    let expected = [
        Item::Event(RawEvent { mask: libc::FAN_CREATE, place: place(b"new\nline"), ..nothing }),
        Item::Event(RawEvent {
            mask: libc::FAN_RENAME,
            from: place(b"old \xff"),
            to: place(b"new"),
            ..nothing
        }),
        Item::Overflow,
        Item::Event(RawEvent { mask: libc::FAN_ATTRIB | libc::FAN_ONDIR, ..nothing }),
    ];
    assert_eq!(items(&buffer).collect::<Vec<_>>(), expected);
}

#[test]
fn malformed_events_are_reported_as_unreadable() {
    let good = event(libc::FAN_CREATE, &[record(2, b"12345678", b"name")]);
    let unreadable = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bad = good.clone();
        change(&mut bad);
        items(&bad).any(|item| item == Item::Unreadable)
    };
    assert!(!unreadable(&|_| {}));
    assert!(unreadable(&|bytes| bytes.truncate(bytes.len() - 1)), "cut");
    assert!(unreadable(&|bytes| bytes[0] = 0), "a length of nothing");
    assert!(unreadable(&|bytes| bytes[3] = 0xff), "a length beyond the buffer");
    assert!(unreadable(&|bytes| bytes[4] = 2), "another version");
    assert!(unreadable(&|bytes| bytes[6] = 0), "a head of nothing");
    assert!(unreadable(&|bytes| bytes[26] = 0), "a record of nothing");
    assert!(unreadable(&|bytes| bytes[36] = 0xff), "a handle longer than its record");
    assert!(unreadable(&|bytes| bytes[54] = b'/'), "a name that leads elsewhere");
    assert!(unreadable(&|bytes| bytes[52] = 0), "a name of nothing");
    for name in [&b".."[..], b"a/b", b"/"] {
        let item = event(libc::FAN_CREATE, &[record(2, b"12345678", name)]);
        assert_eq!(items(&item).collect::<Vec<_>>(), [Item::Unreadable], "{name:?}");
    }
    let long = event(libc::FAN_CREATE, &[record(2, &[0; MAX_HANDLE + 1], b"name")]);
    assert_eq!(items(&long).collect::<Vec<_>>(), [Item::Unreadable]);
}

/// A corrupted buffer: real events with some bytes overwritten.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6);
    (changes, 0usize..4).prop_map(|(changes, count)| {
        let one = event(libc::FAN_RENAME, &[record(10, b"12345678", b"a"), record(12, b"abc", b"bb")]);
        let mut buffer = one.repeat(count + 1);
        for (at, byte) in changes {
            let at = at.index(buffer.len());
            buffer[at] = byte;
        }
        buffer
    })
}

proptest! {
    #[test]
    fn hostile_bytes_end_and_give_only_plain_names(buffer in nearly(), noise in any::<Vec<u8>>()) {
        for buffer in [buffer, noise] {
            let mut count = 0;
            for item in items(&buffer) {
                count += 1;
                if let Item::Event(RawEvent { place, from, to, .. }) = item {
                    for place in [place, from, to].into_iter().flatten() {
                        prop_assert!(!place.name.is_empty() && place.name != b"." && place.name != b"..");
                        prop_assert!(!place.name.contains(&b'/') && !place.name.contains(&0));
                        prop_assert!(place.directory.bytes.len() <= MAX_HANDLE);
                    }
                }
            }
            prop_assert!(count <= buffer.len() / 24 + 1);
        }
    }
}
