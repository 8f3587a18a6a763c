//! Windows of writes in a deployment of several hosts: the versions of a file that this mount saw before and after it
//! wrote ([`gabion_vault::changelog::windows`]).
//!
//! A window begins with the first of the changes that are under way at once, and ends when none is; further changes
//! belong to it as long as nobody else writes in between. One that has ended is recorded together with its ranges.
//!
//! A file with several names has no windows: mounts that know different names record its ranges in different places.

use gabion_platform::sync;
use gabion_vault::changelog::windows::Tick;
use gabion_vault::changelog::{VersionName, Window};
use gabion_vault::tree::Generation;
use gabion_vault::version::name_on_all_hosts;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most windows of a file that are kept until they are recorded. Without the older ones it is read as a whole.
const MAX_ENDED: usize = 1024;

/// A version, if the file has one name.
pub(super) type Seen = Option<(Generation, bool)>;

/// Windows of one file.
#[derive(Debug, Default)]
pub(super) struct FileWindows {
    begun: Option<(VersionName, Tick)>,
    ended: Vec<Window>,
}

impl FileWindows {
    /// A change begins, and no other one is under way.
    pub(super) fn begin(&mut self, last: Option<Generation>, before: Seen, now: Tick) {
        if last.is_none() || last != before.map(|(before, _)| before) {
            self.end(last);
        }
        let Some((before, true)) = before else {
            *self = FileWindows::default();
            return;
        };
        self.begun.get_or_insert_with(|| (name_on_all_hosts(&before), now));
    }

    /// Ends the window that has begun, with the version after the last change if it is known.
    pub(super) fn end(&mut self, last: Option<Generation>) {
        if let (Some((from, since)), Some(last)) = (self.begun.take(), last) {
            self.ended.truncate(MAX_ENDED - 1);
            self.ended.push(Window { from, to: name_on_all_hosts(&last), since: since.0 });
        }
    }

    /// The file has got a second name.
    pub(super) fn forget(&mut self) {
        *self = FileWindows::default();
    }

    /// The windows that have ended.
    pub(super) fn take(&mut self) -> Vec<Window> {
        std::mem::take(&mut self.ended)
    }
}

/// Changes that are under way, in two classes: those that began before a moment, and later ones.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    tick: AtomicU64,
    counts: Mutex<(usize, [u64; 2])>,
}

impl UnderWay {
    /// The last tick that was heard of.
    pub(super) fn tick(&self) -> Tick {
        Tick(self.tick.load(Ordering::SeqCst))
    }

    /// A tick was heard of.
    pub(super) fn hear(&self, tick: Tick) {
        self.tick.store(tick.0, Ordering::SeqCst);
    }

    /// Runs a change.
    pub(super) fn during<T>(&self, act: impl FnOnce() -> T) -> T {
        let class = {
            let (class, counts) = &mut *sync::lock(&self.counts);
            counts[*class] += 1;
            *class
        };
        let _end = End { under_way: self, class };
        act()
    }

    /// From now on changes are later ones. False while earlier ones of the last time are under way.
    pub(super) fn part(&self) -> bool {
        let (class, counts) = &mut *sync::lock(&self.counts);
        let is_over = counts[1 - *class] == 0;
        if is_over {
            *class = 1 - *class;
        }
        is_over
    }

    /// True if all changes that began before the last [`part`](UnderWay::part) have ended.
    pub(super) fn has_ended(&self) -> bool {
        let (class, counts) = &*sync::lock(&self.counts);
        counts[1 - class] == 0
    }
}

struct End<'a> {
    under_way: &'a UnderWay,
    class: usize,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        sync::lock(&self.under_way.counts).1[self.class] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{FileWindows, UnderWay};
    use gabion_vault::changelog::Window;
    use gabion_vault::changelog::windows::Tick;
    use gabion_vault::tree::Generation;
    use gabion_vault::version::name_on_all_hosts;
    use gabion_vault::world::Timestamp;

    fn at(time: i64) -> Generation {
        let time = Timestamp::from_nanoseconds(time);
        Generation { size: 1, mtime: time, ctime: time, inode: 7 }
    }

    fn window(from: i64, to: i64, since: u64) -> Window {
        Window { from: name_on_all_hosts(&at(from)), to: name_on_all_hosts(&at(to)), since }
    }

    #[test]
    fn a_window_ends_where_others_write_and_where_it_is_recorded() {
        let mut windows = FileWindows::default();
        windows.begin(None, Some((at(1), true)), Tick(5));
        windows.begin(Some(at(2)), Some((at(2), true)), Tick(6));
        assert_eq!(windows.take(), [], "it goes on");
        // Somebody wrote between 3 and 4.
        windows.begin(Some(at(3)), Some((at(4), true)), Tick(7));
        windows.end(Some(at(5)));
        assert_eq!(windows.take(), [window(1, 3, 5), window(4, 5, 7)]);
        windows.begin(Some(at(5)), Some((at(5), true)), Tick(8));
        windows.end(Some(at(6)));
        assert_eq!(windows.take(), [window(5, 6, 8)], "it joins the last one");
    }

    #[test]
    fn what_is_not_known_for_certain_is_in_no_window() {
        let mut windows = FileWindows::default();
        windows.begin(None, Some((at(1), true)), Tick(5));
        // The version after it is not known.
        windows.begin(None, Some((at(2), true)), Tick(5));
        windows.end(Some(at(3)));
        assert_eq!(windows.take(), [window(2, 3, 5)]);
        // Another name.
        windows.begin(Some(at(3)), Some((at(3), true)), Tick(5));
        windows.begin(Some(at(4)), Some((at(5), false)), Tick(5));
        windows.end(Some(at(6)));
        assert_eq!(windows.take(), []);
    }

    #[test]
    fn changes_that_began_before_are_waited_for_and_later_ones_are_not() {
        let under_way = UnderWay::default();
        assert!(under_way.part() && under_way.has_ended());
        under_way.during(|| {
            assert!(under_way.part() && !under_way.has_ended());
            assert!(!under_way.part(), "there are two classes only");
            under_way.during(|| assert!(!under_way.has_ended()));
        });
        assert!(under_way.has_ended());
        under_way.during(|| assert!(under_way.has_ended(), "it began later"));
        assert!(under_way.part());
    }
}
