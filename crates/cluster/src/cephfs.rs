//! CephFS 16 to 18: layout attributes and the JSON of the `ceph` tool.
//!
//! The bytes of a file are dealt to objects of a pool, and the cluster maps objects to OSDs. A target is an OSD, named
//! `osd.N`.

use crate::layout::{Component, Layout, Placement, State, Striping, Target};
use crate::lines::number;
use serde::Deserialize;

/// Attribute with the layout of a file as JSON.
pub const LAYOUT_JSON: &str = "ceph.file.layout.json";

/// The same as a line of text; all versions have it.
pub const LAYOUT: &str = "ceph.file.layout";

/// Attribute of a directory: time of the last change at or below it.
pub const RCTIME: &str = "ceph.dir.rctime";

/// Layout of a file, as its attribute says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FileLayout {
    /// Bytes until the next object of the set follows.
    pub stripe_unit: u64,
    /// Objects of a set.
    pub stripe_count: u64,
    /// Bytes of an object.
    pub object_size: u64,
    /// Pool of the objects.
    #[serde(rename = "pool_name")]
    pub pool: String,
    /// Namespace of the objects within the pool; empty for the default one.
    #[serde(rename = "pool_namespace", default)]
    pub namespace: String,
}

impl FileLayout {
    /// Decodes the value of [`LAYOUT_JSON`].
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode_json(value: &[u8]) -> Result<FileLayout, String> {
        let layout: FileLayout =
            serde_json::from_slice(value).map_err(|error| format!("{LAYOUT_JSON}: {error}"))?;
        layout.checked()
    }

    /// Decodes the value of [`LAYOUT`]: `stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=data`, with
    /// `pool_namespace=NAME` if there is one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode_text(value: &str) -> Result<FileLayout, String> {
        let field = |key: &str| {
            let mut pairs = value.split_whitespace().filter_map(|word| word.split_once('='));
            pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
        };
        let count = |key: &str| field(key).and_then(number).ok_or_else(|| format!("{LAYOUT}: no {key}"));
        let layout = FileLayout {
            stripe_unit: count("stripe_unit")?,
            stripe_count: count("stripe_count")?,
            object_size: count("object_size")?,
            pool: field("pool").ok_or_else(|| format!("{LAYOUT}: no pool"))?.to_owned(),
            namespace: field("pool_namespace").unwrap_or_default().to_owned(),
        };
        layout.checked()
    }

    fn checked(self) -> Result<FileLayout, String> {
        let sizes = self.stripe_unit > 0
            && self.stripe_count > 0
            && self.object_size.is_multiple_of(self.stripe_unit)
            && self.object_size >= self.stripe_unit
            && self.object_size.checked_mul(self.stripe_count).is_some();
        // Given to the `ceph` tool as an argument.
        let is_name = !self.pool.is_empty() && !self.pool.starts_with('-');
        if sizes && is_name {
            Ok(self)
        } else {
            Err("the layout of the file has impossible sizes".to_owned())
        }
    }

    /// Number of objects that a file of `size` bytes has.
    pub fn objects(&self, size: u64) -> u64 {
        let set = self.object_size * self.stripe_count;
        let rest = size % set;
        // The last set has objects up to its first row, and all of them from the second row on.
        let last = rest.div_ceil(self.stripe_unit).min(self.stripe_count);
        (size / set).saturating_mul(self.stripe_count).saturating_add(last)
    }

    /// Name of an object of the file with this inode number.
    pub fn object(&self, inode: u64, index: u64) -> String {
        format!("{inode:x}.{index:08x}")
    }

    /// The layout, with the placements of objects that are known. Objects that were not asked about have no placement.
    pub fn layout(&self, placements: Vec<Placement>) -> Layout {
        let mut component = Component::whole(0, None);
        component.striping = Some(Striping {
            unit: self.stripe_unit,
            columns: self.stripe_count,
            object: Some(self.object_size),
        });
        component.flags.push(format!("pool {}", self.pool));
        component.placements = placements;
        Layout { components: vec![component] }
    }
}

#[derive(Deserialize)]
struct OsdMap {
    acting: Vec<i64>,
}

/// Decodes `ceph osd map POOL OBJECT -f json`: the copies of an object, or its chunks in an erasure-coded pool.
///
/// # Errors
/// What is wrong with it.
pub fn placements(text: &[u8], object: &str, index: u64) -> Result<Vec<Placement>, String> {
    let map: OsdMap = serde_json::from_slice(text).map_err(|error| format!("ceph osd map: {error}"))?;
    if map.acting.is_empty() {
        return Err(format!("ceph osd map: no OSD serves {object}"));
    }
    let copies = map.acting.iter().zip(0..);
    let placement = |(osd, copy): (&i64, u32)| Placement {
        column: index,
        copy,
        // 2^31 - 1 stands for none.
        target: (0..i64::from(i32::MAX)).contains(osd).then(|| format!("osd.{osd}")),
        object: Some(object.to_owned()),
        state: None,
    };
    Ok(copies.map(placement).collect())
}

#[derive(Deserialize)]
struct OsdDump {
    osds: Vec<Osd>,
}

#[derive(Deserialize)]
struct Osd {
    osd: u32,
    up: u8,
    r#in: u8,
}

/// Decodes `ceph osd dump -f json`.
///
/// # Errors
/// What is wrong with it.
pub fn targets(text: &[u8]) -> Result<Vec<Target>, String> {
    let dump: OsdDump = serde_json::from_slice(text).map_err(|error| format!("ceph osd dump: {error}"))?;
    let target = |osd: &Osd| Target {
        name: format!("osd.{}", osd.osd),
        domain: None,
        state: match (osd.up, osd.r#in) {
            (0, _) => State::Offline,
            (1, 1) => State::Online,
            // Up and out: it serves what it has until that has been moved away.
            (1, 0) => State::Restricted,
            _ => State::Unknown,
        },
        labels: Vec::new(),
        used: None,
        total: None,
    };
    if dump.osds.is_empty() {
        Err("ceph osd dump: no OSDs".to_owned())
    } else {
        Ok(dump.osds.iter().map(target).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{FileLayout, placements, targets};
    use crate::layout::State;

    const JSON: &str = r#"{"stripe_unit": 1048576, "stripe_count": 4, "object_size": 4194304, "pool_name": "data",
        "pool_id": 7, "pool_namespace": "", "inheritance": "@set"}"#;

    #[test]
    fn both_attributes_say_the_same() {
        let layout = FileLayout::decode_json(JSON.as_bytes()).unwrap();
        let text = "stripe_unit=1048576 stripe_count=4 object_size=4194304 pool=data";
        assert_eq!(FileLayout::decode_text(text).unwrap(), layout);
        assert_eq!(layout.object(0x100_0000_0004, 3), "10000000004.00000003");
        let counts: Vec<u64> = [0, 1, 1 << 20, (1 << 20) + 1, 5 << 20, 16 << 20, (16 << 20) + 1]
            .map(|size| layout.objects(size))
            .into();
        assert_eq!(counts, [0, 1, 1, 2, 4, 4, 5]);
        for bad in [
            "stripe_unit=0 stripe_count=1 object_size=1 pool=a",
            "stripe_unit=3 stripe_count=1 object_size=4 pool=a",
            "stripe_unit=1 stripe_count=18446744073709551615 object_size=2 pool=a",
            "stripe_unit=1 stripe_count=1 object_size=1 pool=-a",
            "pool=a",
        ] {
            assert!(FileLayout::decode_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn objects_and_osds() {
        let map = br#"{"epoch":43,"pool":"p","pool_id":4,"objname":"o","pgid":"4.4","up":[2],"up_primary":2,"acting":[2,2147483647]}"#;
        let found = placements(map, "o", 3).unwrap();
        assert_eq!((found[0].target.as_deref(), found[0].column), (Some("osd.2"), 3));
        assert_eq!(found[1].target, None);
        assert!(placements(br#"{"acting":[]}"#, "o", 0).is_err());
        let dump = br#"{"osds":[{"osd":0,"up":1,"in":1},{"osd":1,"up":0,"in":1},{"osd":2,"up":1,"in":0}]}"#;
        let states: Vec<State> = targets(dump).unwrap().iter().map(|it| it.state).collect();
        assert_eq!(states, [State::Online, State::Offline, State::Restricted]);
    }
}
