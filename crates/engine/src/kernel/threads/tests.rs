use super::*;

/// The ranges of `blocks` blocks, half of them outputs.
fn ranges_of(threads: &Threads, granule: usize, lead: usize, blocks: usize, len: usize) -> Vec<Range<usize>> {
    let block = vec![0u8; len];
    let mut written = vec![vec![0u8; len]; blocks / 2];
    let inputs = vec![&block[..]; blocks - written.len()];
    let outputs: Vec<&mut [u8]> = written.iter_mut().map(Vec::as_mut_slice).collect();
    let ranges = threads.ranges(granule, lead, &inputs, &outputs);
    (0..ranges.count).map(|index| ranges.at(index)).collect()
}

#[test]
fn ranges_cover_every_byte_once_and_begin_with_a_granule() {
    for count in [2, 3, 5] {
        let threads = Threads::new(count).unwrap();
        for (granule, lead, blocks) in
            [(1, 0, 6), (1, 48 << 10, 6), (1, 48 << 10, 14), (12, 48 << 10, 2), (96 << 10, 48 << 10, 4)]
        {
            for granules in [1, 2, 3, 1000, 65_536, 70_001, 300_000] {
                let len = granule * granules;
                if len > 4 << 20 {
                    continue;
                }
                let ranges = ranges_of(&threads, granule, lead, blocks, len);
                assert!((1..=count).contains(&ranges.len()), "{ranges:?}");
                assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, len));
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
                assert!(ranges.iter().all(|range| range.start % granule == 0 && !range.is_empty()));
                // Joining the results of ranges relies on this.
                let equal = &ranges[..ranges.len() - 1];
                assert!(lead > 0 || equal.iter().all(|range| range.len() == equal[0].len()), "{ranges:?}");
            }
        }
    }
}

/// Blocks of large codes are often shorter than a page, but there are enough of them for all threads.
#[test]
fn many_short_blocks_are_split_among_threads() {
    let threads = Threads::new(2).unwrap();
    assert_eq!(ranges_of(&threads, 2, HANDOVER_BYTES, 4096, 1024), [0..512, 512..1024]);
    assert_eq!(ranges_of(&threads, 2, HANDOVER_BYTES, 1024, 1024).len(), 1);
}

#[test]
fn the_caller_gets_a_longer_range_if_ranges_are_long() {
    let threads = Threads::new(2).unwrap();
    let firsts =
        |granule, len| [0, HANDOVER_BYTES].map(|lead| ranges_of(&threads, granule, lead, 6, len)[0].len());
    assert_eq!(firsts(1, 64 << 10), [32 << 10, 36 << 10]);
    assert_eq!(firsts(1, 1 << 20), [512 << 10, 516 << 10]);
    // Never everything: two packets of 128 KiB are still two ranges.
    assert_eq!(firsts(128 << 10, 256 << 10), [128 << 10, 128 << 10]);
}

#[test]
fn too_many_threads_are_refused() {
    for count in [MAX_THREADS + 1, 1 << 40, usize::MAX] {
        let Error::Threads { threads, reason } = Threads::new(count).unwrap_err() else { panic!("{count}") };
        assert_eq!((threads, reason.as_str()), (count, "a pool has at most 4096"));
    }
}
