//! Copies within host memory, on several threads if they are long.

/// Minimum bytes for a parallel copy.
const PARALLEL: usize = 4 << 20;

/// Maximum threads of a copy: more do not increase the memory bandwidth.
const COPY_THREADS: usize = 8;

/// Copies every source to its target of the same length.
pub(crate) fn copy_in_parallel(copies: Vec<(&mut [u8], &[u8])>) {
    let total: usize = copies.iter().map(|(_, from)| from.len()).sum();
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get()).min(COPY_THREADS);
    if total < PARALLEL || threads == 1 {
        copies.into_iter().for_each(|(to, from)| to.copy_from_slice(from));
        return;
    }
    let share = total.div_ceil(threads);
    let mut loads: Vec<Vec<(&mut [u8], &[u8])>> = vec![Vec::new()];
    let mut room = share;
    for (mut to, mut from) in copies {
        while !from.is_empty() {
            if room == 0 {
                loads.push(Vec::new());
                room = share;
            }
            let cut = from.len().min(room);
            let (to_head, to_tail) = to.split_at_mut(cut);
            let (from_head, from_tail) = from.split_at(cut);
            if let Some(load) = loads.last_mut() {
                load.push((to_head, from_head));
            }
            (to, from, room) = (to_tail, from_tail, room - cut);
        }
    }
    std::thread::scope(|scope| {
        for load in loads {
            scope.spawn(move || load.into_iter().for_each(|(to, from)| to.copy_from_slice(from)));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied() {
        let lengths = [3 << 20, 1, 0, (2 << 20) + 7, 5];
        let from: Vec<Vec<u8>> = lengths
            .iter()
            .map(|&len| (0..len).map(|byte: usize| (byte * 31 + len) as u8).collect())
            .collect();
        let mut to: Vec<Vec<u8>> = lengths.iter().map(|&len| vec![0; len]).collect();
        let pairs = to.iter_mut().zip(&from).map(|(to, from)| (&mut to[..], &from[..]));
        copy_in_parallel(pairs.collect());
        assert!(to == from);
    }
}
