//! Layout of a file: which target holds which of its bytes.

use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::Range;

/// Layout of a file. Ranges that no component covers are holes or not allocated yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Components in the order in which the file system lists them.
    pub components: Vec<Component>,
}

/// A range of a file that is placed by one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Component {
    /// First byte.
    pub start: u64,
    /// End of the range; none if it has no end.
    pub end: Option<u64>,
    /// Copy of the file that the component belongs to, from 0. Components of different copies may overlap.
    pub mirror: u32,
    /// How the bytes are dealt to columns; none if all of them are in one object.
    pub striping: Option<Striping>,
    /// Words of the file system about the component, such as `init`, `stale` or `raid0`.
    pub flags: Vec<String>,
    /// Objects with their targets. Empty if the component is not allocated or the objects are unknown.
    pub placements: Vec<Placement>,
}

/// Bytes dealt round-robin to columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Striping {
    /// Bytes of a column until the next one follows.
    pub unit: u64,
    /// Number of columns.
    pub columns: u64,
    /// Bytes of an object, after which new objects are begun; none if columns are single objects.
    pub object: Option<u64>,
}

/// An object of a component on a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Number of the object in the component: that of the column where objects do not end.
    pub column: u64,
    /// Copy of this object, from 0.
    pub copy: u32,
    /// Target; none if it is unknown.
    pub target: Option<String>,
    /// Name of the object; none if the file system does not tell.
    pub object: Option<String>,
    /// Word of the file system about the state of the object; none if it does not tell.
    pub state: Option<String>,
}

impl Component {
    /// A range in one object.
    pub fn whole(start: u64, end: Option<u64>) -> Component {
        Component { start, end, mirror: 0, striping: None, flags: Vec::new(), placements: Vec::new() }
    }

    /// True if the component has bytes of `range`.
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        self.start < range.end && self.end.is_none_or(|end| range.start < end)
    }
}

impl Layout {
    /// All targets that hold a part of the file.
    pub fn targets(&self) -> BTreeSet<&str> {
        let placements = self.components.iter().flat_map(|component| &component.placements);
        placements.filter_map(|placement| placement.target.as_deref()).collect()
    }

    /// Ranges below `size` that are lost if the targets are for which `is_gone` is true, sorted and disjoint. Copies
    /// that the file system calls unusable do not count. Ranges in no component are holes.
    ///
    /// # Errors
    /// The placement of a part of the file is not known, or not understood here.
    pub fn lost(&self, size: u64, is_gone: &dyn Fn(&str) -> bool) -> Result<Vec<Range<u64>>, String> {
        let mut lost = Vec::new();
        for component in self.components.iter().filter(|component| component.overlaps(&(0..size))) {
            if component.mirror > 0 || component.striping.is_some() {
                return Err("the placement of striped and mirrored files is not used yet".to_owned());
            }
            let usable =
                |placement: &&Placement| placement.state.as_deref().is_none_or(|state| state == "VALID");
            let mut usable = component.placements.iter().filter(usable).peekable();
            if usable.peek().is_none() && component.flags.iter().any(|flag| flag == "empty") {
                continue;
            }
            let mut is_left = false;
            for placement in usable {
                let target = placement.target.as_deref().ok_or("the target of a copy is not known")?;
                is_left |= !is_gone(target);
            }
            if !is_left {
                lost.push(component.start..component.end.unwrap_or(size).min(size));
            }
        }
        lost.sort_by_key(|range| range.start);
        lost.dedup_by(|next, before| {
            let adjacent = next.start <= before.end;
            if adjacent {
                before.end = before.end.max(next.end);
            }
            adjacent
        });
        Ok(lost)
    }

    /// Bytes below `size` that no component has.
    pub fn uncovered(&self, size: u64) -> u64 {
        let mut ranges: Vec<(u64, u64)> = self
            .components
            .iter()
            .map(|component| (component.start, component.end.unwrap_or(u64::MAX)))
            .collect();
        ranges.sort_unstable();
        let (mut at, mut missing) = (0, 0);
        for (start, end) in ranges {
            missing += start.min(size).saturating_sub(at);
            at = at.max(end.min(size));
        }
        missing + (size - at)
    }

    /// Number of placements whose target is unknown, and of components with bytes below `size` without placements.
    pub fn unplaced(&self, size: u64) -> (usize, usize) {
        let placements = self.components.iter().flat_map(|component| &component.placements);
        let empty =
            |component: &&Component| component.placements.is_empty() && component.overlaps(&(0..size));
        (
            placements.filter(|placement| placement.target.is_none()).count(),
            self.components.iter().filter(empty).count(),
        )
    }
}

/// A target and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    /// Name, as in [`Placement::target`].
    pub name: String,
    /// Targets of one domain may fail together; none if the domain is unknown.
    pub domain: Option<String>,
    /// State.
    pub state: State,
    /// Labels, pools or classes by which the file system chooses targets.
    pub labels: Vec<String>,
    /// Used bytes; none if unknown.
    pub used: Option<u64>,
    /// Total bytes; none if unknown.
    pub total: Option<u64>,
}

/// State of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It serves reads and writes.
    Online,
    /// It answers, but takes part only in a restricted way: read-only, in maintenance, being emptied.
    Restricted,
    /// It does not answer.
    Offline,
    /// The file system does not tell, or in words that are not known here.
    Unknown,
}

impl State {
    /// The word of a report.
    pub fn word(self) -> &'static str {
        match self {
            State::Online => "online",
            State::Restricted => "restricted",
            State::Offline => "offline",
            State::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Component, Layout, Placement};

    fn placed(start: u64, end: Option<u64>, targets: &[Option<&str>]) -> Component {
        let placement = |(column, target): (usize, &Option<&str>)| Placement {
            column: column as u64,
            copy: 0,
            target: target.map(str::to_owned),
            object: None,
            state: None,
        };
        let placements = targets.iter().enumerate().map(placement).collect();
        Component { placements, ..Component::whole(start, end) }
    }

    #[test]
    fn unknown_places_are_counted() {
        let layout = Layout {
            components: vec![
                placed(0, Some(100), &[Some("b"), Some("a")]),
                placed(100, Some(200), &[Some("a"), None]),
                placed(200, None, &[]),
            ],
        };
        assert_eq!(layout.targets().into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(layout.unplaced(201), (1, 1));
        // The last component has no bytes yet.
        assert_eq!(layout.unplaced(200), (1, 0));
    }

    #[test]
    fn bytes_without_a_usable_copy_are_lost() {
        let mut layout = Layout {
            components: vec![
                placed(20, Some(30), &[Some("a"), Some("b")]),
                placed(0, Some(10), &[Some("a")]),
                placed(10, Some(20), &[Some("a")]),
                placed(30, None, &[Some("b")]),
            ],
        };
        let lost = |layout: &Layout, gone: &[&str]| {
            let ranges = layout.lost(40, &|target| gone.contains(&target));
            ranges.map(|ranges| ranges.iter().map(|range| (range.start, range.end)).collect::<Vec<_>>())
        };
        assert_eq!(lost(&layout, &[]).unwrap(), []);
        assert_eq!(lost(&layout, &["a"]).unwrap(), [(0, 20)]);
        assert_eq!(lost(&layout, &["a", "b"]).unwrap(), [(0, 40)]);
        layout.components[0].placements[1].state = Some("INVALID".to_owned());
        assert_eq!(lost(&layout, &["a"]).unwrap(), [(0, 30)]);
        // Without any copy it is lost already.
        layout.components[1].placements.clear();
        assert_eq!(lost(&layout, &[]).unwrap(), [(0, 10)]);
        layout.components[1].flags.push("empty".to_owned());
        assert_eq!(lost(&layout, &[]).unwrap(), []);
        layout.components[2].placements[0].target = None;
        assert!(lost(&layout, &[]).is_err());
    }

    #[test]
    fn bytes_between_components_are_counted() {
        let layout = Layout {
            components: vec![placed(50, Some(60), &[]), placed(10, Some(30), &[]), placed(20, Some(40), &[])],
        };
        assert_eq!([0, 5, 10, 35, 45, 100].map(|size| layout.uncovered(size)), [0, 5, 10, 10, 15, 60]);
        assert_eq!(Layout { components: vec![placed(7, None, &[])] }.uncovered(u64::MAX), 7);
    }

    #[test]
    fn ranges_overlap_if_they_share_a_byte() {
        let component = Component::whole(10, Some(20));
        assert!(component.overlaps(&(19..30)) && component.overlaps(&(0..11)));
        assert!(!component.overlaps(&(20..30)) && !component.overlaps(&(0..10)));
        assert!(Component::whole(10, None).overlaps(&(u64::MAX - 1..u64::MAX)));
    }
}
