use super::{CHUNK, is_valid, layout, master, targets};
use crate::layout::State;

const VERSION_3: &str = "/mnt/mfs/f:\n\
    \tchunk 0: 0000000000000001_00000001 / (id:1 ver:1)\n\
    \t\tcopy 1: 10.77.0.1:19503 (status:VALID)\n\
    \t\tcopy 2: 10.77.0.1:19504 (status:INVALID)\n\
    \tchunk 2: 0000000000000003_00000001 / (id:3 ver:1)\n\
    \t\tno valid copies !!!\n";

const VERSION_4: &str = "/mnt/mfs/f:\n\
    \tchunk 0: 0000000000000001_00000001 / (id:1 ver:1) ; mtime:1794954400 (2026-11-17 22:26:40)\n\
    \t\tcopy 1: 10.77.0.1:19503 ; status:VALID\n";

#[test]
fn both_spellings_of_a_copy_are_read() {
    let three = layout(VERSION_3).unwrap();
    assert_eq!(three.components.len(), 2);
    let first = &three.components[0];
    assert_eq!((first.start, first.end), (0, Some(CHUNK)));
    assert_eq!(first.flags, ["chunk 0000000000000001_00000001"]);
    assert_eq!(first.placements[1].copy, 1);
    assert_eq!(first.placements.iter().map(is_valid).collect::<Vec<_>>(), [true, false]);
    let gone = &three.components[1];
    assert_eq!((gone.start, gone.placements.len()), (2 * CHUNK, 0));
    assert_eq!(gone.flags, ["chunk 0000000000000003_00000001", "no valid copies"]);
    assert_eq!(three.unplaced(3 * CHUNK), (0, 1));

    let four = layout(VERSION_4).unwrap();
    assert_eq!(four.components[0].placements, three.components[0].placements[..1]);
}

#[test]
fn empty_files_have_no_chunks() {
    assert_eq!(layout("/mnt/f:\n\tno chunks - empty file\n").unwrap().components, []);
    for nonsense in ["", "/mnt/f:\n", "/mnt/f:\n\tchunk x: 1\n", "f:\n\t\tcopy 1: 1.2.3.4:5 (status:VALID)\n"]
    {
        assert!(layout(nonsense).is_err(), "{nonsense:?}");
    }
}

#[test]
fn servers_are_listed_with_their_state() {
    let text = "chunk servers:|10.77.0.1|19501|1|A,C|3.0.117|0|maintenance_off|2|513|975|-|0|0|0\n\
        chunk servers:|10.77.0.2|19502|2|-|3.0.117|0|maintenance_on|2|513|975|-|0|0|0\n\
        chunk servers:|10.77.0.3|19503|3\n\nmetadata servers:|10.77.0.1|3.0.117|-\n\
        Disconnected chunk servers:|10.77.0.4|19504|4|maintenance_off\n";
    let found = targets(text).unwrap();
    let states: Vec<State> = found.iter().map(|target| target.state).collect();
    assert_eq!(states, [State::Online, State::Restricted, State::Unknown, State::Offline]);
    assert_eq!(found[0].labels, ["A", "C"]);
    assert_eq!((found[0].used, found[0].total), (Some(513), Some(975)));
    assert_eq!((found[3].name.as_str(), found[3].used), ("10.77.0.4:19504", None));
    assert!(targets("Traceback (most recent call last):\n").is_err());
}

#[test]
fn the_master_is_named_by_the_source_of_the_mount() {
    assert_eq!(master("mfs#10.77.0.1:19421"), Some(("10.77.0.1", 19421)));
    assert_eq!(master("mfs#mfsmaster:9421/sub/dir"), Some(("mfsmaster", 9421)));
    for bad in ["mfs#", "mfs#host", "mfs#:1", "mfs#-h:1", "mfs#a b:1", "mfs#h:99999", "10.0.0.1:9421"] {
        assert_eq!(master(bad), None, "{bad}");
    }
}
