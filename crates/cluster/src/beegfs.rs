//! BeeGFS: entry information and the states of targets, as `beegfs-ctl` and `beegfs` print them. A target is named by
//! its number.

use crate::layout::{Component, Layout, Placement, State, Striping, Target};
use crate::lines::{key_value, number, size};

/// Decodes what `beegfs-ctl --getentryinfo` or `beegfs entry info` print for a file:
///
/// ```text
/// Stripe pattern details:
/// + Type: RAID0
/// + Chunksize: 512K
/// + Number of storage targets: desired: 4; actual: 4
/// + Storage targets:
///   + 101 @ node [ID: 1]
/// + Storage Pool: 3 (name)
/// ```
///
/// # Errors
/// What is wrong with it. Directories have a pattern for new files and no targets.
pub fn layout(text: &str) -> Result<Layout, String> {
    let mut component = Component::whole(0, None);
    let (mut unit, mut actual, mut section) = (None, None, "");
    for line in text.lines() {
        let Some(item) = line.trim_start().strip_prefix("+ ") else {
            section = "";
            continue;
        };
        let is_inner = line.starts_with([' ', '\t']);
        if is_inner && !section.is_empty() {
            let id = item.split_whitespace().next().unwrap_or_default();
            let id = number(id).ok_or("entry info: a target without a number")?;
            let column = component.placements.len() as u64;
            // A mirrored file names groups of two targets, and not the targets themselves.
            let target = (section == "targets").then(|| id.to_string());
            let object = (section == "groups").then(|| format!("buddy group {id}"));
            component.placements.push(Placement { column, copy: 0, target, object, state: None });
            continue;
        }
        let (key, value) = key_value(item).unwrap_or((item, ""));
        section = "";
        match key {
            "Type" => component.flags.push(value.chars().take(40).collect()),
            "Chunksize" => {
                unit = Some(size(value).filter(|unit| *unit > 0).ok_or("entry info: no chunk size")?)
            }
            "Storage targets" => section = "targets",
            "Storage mirror buddy groups" => section = "groups",
            "Number of storage targets" => {
                actual =
                    value.split_once("actual:").and_then(|(_, count)| number(count.trim_end_matches(';')));
            }
            _ => {}
        }
    }
    let found = component.placements.len() as u64;
    match (unit, found) {
        (None, _) => Err("entry info: no stripe pattern".to_owned()),
        (_, 0) => Err("entry info: no storage targets".to_owned()),
        _ if actual.is_some_and(|count| count != found) => {
            Err(format!("entry info: {found} of its targets are listed"))
        }
        (Some(unit), _) => {
            component.striping = Some(Striping { unit, columns: found, object: None });
            Ok(Layout { components: vec![component] })
        }
    }
}

/// Decodes what `beegfs-ctl --listtargets --state --nodetype=storage` prints:
///
/// ```text
/// TargetID     Reachability  Consistency   NodeID
/// ========     ============  ===========   ======
///      101           Online         Good        1
/// ```
///
/// # Errors
/// No target is listed.
pub fn targets(text: &str) -> Result<Vec<Target>, String> {
    let target = |line: &str| {
        let mut words = line.split_whitespace();
        let id = number(words.next()?)?;
        let (reachable, consistent) = (words.next()?, words.next()?);
        Some(Target {
            name: id.to_string(),
            domain: words.next().and_then(number).map(|node| format!("node {node}")),
            state: match (reachable, consistent) {
                ("Online", "Good") => State::Online,
                ("Online", "Needs-resync" | "Bad") => State::Restricted,
                ("Offline" | "Probably-offline", _) => State::Offline,
                _ => State::Unknown,
            },
            labels: Vec::new(),
            used: None,
            total: None,
        })
    };
    let found: Vec<Target> = text.lines().filter_map(target).collect();
    if found.is_empty() { Err("no storage targets are listed".to_owned()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::{layout, targets};
    use crate::layout::{State, Striping};

    const FILE: &str = "Entry type: file\nEntryID: 0-65A1-1\nMetadata node: meta1 [ID: 1]\nStripe pattern details:\n\
        + Type: RAID0\n+ Chunksize: 512K\n+ Number of storage targets: desired: 4; actual: 2\n+ Storage targets:\n\
        \x20 + 101 @ node1 [ID: 1]\n  + 202 @ node2 [ID: 2]\n+ Storage Pool: 3 (fast)\n";

    #[test]
    fn a_striped_file() {
        let found = layout(FILE).unwrap();
        assert_eq!(
            found.components[0].striping,
            Some(Striping { unit: 512 << 10, columns: 2, object: None })
        );
        assert_eq!(found.targets().into_iter().collect::<Vec<_>>(), ["101", "202"]);
    }

    #[test]
    fn mirrored_files_name_groups() {
        let text = FILE
            .replace("Storage targets:\n", "Storage mirror buddy groups:\n")
            .replace("RAID0", "Buddy Mirror");
        let found = layout(&text).unwrap();
        assert_eq!(found.unplaced(1).0, 2);
        assert_eq!(found.components[0].placements[0].object.as_deref(), Some("buddy group 101"));
    }

    #[test]
    fn other_texts_are_no_layout() {
        let directory = "Entry type: directory\nStripe pattern details:\n+ Type: RAID0\n+ Chunksize: 512K\n\
            + Number of storage targets: desired: 4\n";
        let cut = FILE.replace("  + 202 @ node2 [ID: 2]\n", "");
        for bad in ["", directory, &cut, &FILE.replace("512K", "0"), &FILE.replace("+ 101", "+ x")] {
            assert!(layout(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn states_of_targets() {
        let text = "TargetID     Reachability  Consistency   NodeID\n========     ============  ===========   ======\n\
            \x20    101           Online         Good        1\n     202          Offline Needs-resync        2\n\
            \x20    203           Online Needs-resync        2\n     204           Strange         Good        2\n";
        let found = targets(text).unwrap();
        let states: Vec<State> = found.iter().map(|it| it.state).collect();
        assert_eq!(states, [State::Online, State::Offline, State::Restricted, State::Unknown]);
        assert_eq!(found[0].domain.as_deref(), Some("node 1"));
        assert!(targets("Unable to connect\n").is_err());
    }
}
