//! The layout of a Lustre file as its attribute `lustre.lov` has it, little endian.
//!
//! | magic | layout |
//! | --- | --- |
//! | `0x0BD10BD0` | plain: pattern u32, identity 16 bytes, stripe size u32, stripe count u16, generation u16; then 24 bytes per object: identity 16 bytes, generation u32, OST index u32 |
//! | `0x0BD30BD0` | the same, with the name of a pool (16 bytes) before the objects |
//! | `0x0BD60BD0` | composite: size u32, generation u32, flags u16, entry count u16, mirror count u16, 14 reserved bytes; then 48 bytes per entry: identity u32, flags u32, start u64, end u64, offset u32, size u32, generation u32, time u64, 4 reserved bytes. At offset and for size bytes from the beginning of the value is a plain layout |

use super::ost;
use crate::layout::{Component, Layout, Placement, Striping};

const V1: u32 = 0x0bd1_0bd0;
const V3: u32 = 0x0bd3_0bd0;
const COMPOSITE: u32 = 0x0bd6_0bd0;

/// Bytes before the entries of a composite layout.
const COMPOSITE_HEADER: usize = 32;

/// Bytes of an entry of a composite layout.
const ENTRY: usize = 48;

/// Bytes of an object of a plain layout.
const OBJECT: usize = 24;

/// Pattern: blocks in turn over all objects.
const RAID0: u32 = 1;

/// Flag of a pattern: several objects may be on one OST.
const OVERSTRIPED: u32 = 0x200;

/// Flag of a pattern: the content was released to an archive.
const RELEASED: u32 = 0x8000_0000;

/// Pattern: the content is on the MDT.
const MDT: u32 = 0x100;

/// Flag of an entry: it has objects.
const INIT: u32 = 0x10;

/// Flag of an entry: its content is outdated.
const STALE: u32 = 0x1;

/// Decodes the value of the attribute.
///
/// # Errors
/// What is wrong with it.
pub fn layout(value: &[u8]) -> Result<Layout, String> {
    let components = match u32_at(value, 0)? {
        COMPOSITE => composite(value)?,
        _ => vec![plain(value, Component::whole(0, None), true)?],
    };
    Ok(Layout { components })
}

fn composite(value: &[u8]) -> Result<Vec<Component>, String> {
    let count = u16_at(value, 14)?;
    if count == 0 {
        return Err("lov: a composite layout without components".to_owned());
    }
    let mut mirrors: Vec<u32> = Vec::new();
    let mut components = Vec::new();
    for entry in 0..usize::from(count) {
        let at = COMPOSITE_HEADER + entry * ENTRY;
        let (identity, flags) = (u32_at(value, at)?, u32_at(value, at + 4)?);
        let (start, end) = (u64_at(value, at + 8)?, u64_at(value, at + 16)?);
        if end <= start {
            return Err("lov: a component without bytes".to_owned());
        }
        let (offset, size) = (u32_at(value, at + 24)? as usize, u32_at(value, at + 28)? as usize);
        let end_of_part = offset.checked_add(size).ok_or("lov: a component out of bounds")?;
        let part = value.get(offset..end_of_part).ok_or("lov: a component out of bounds")?;
        // The upper half of an identity is the mirror.
        let mirror = identity >> 16;
        let known = mirrors.iter().position(|known| *known == mirror).unwrap_or_else(|| {
            mirrors.push(mirror);
            mirrors.len() - 1
        });
        let mut component = Component::whole(start, (end != u64::MAX).then_some(end));
        component.mirror = known as u32;
        for (flag, word) in [(STALE, "stale"), (INIT, "init")] {
            if flags & flag != 0 {
                component.flags.push(word.to_owned());
            }
        }
        components.push(plain(part, component, flags & INIT != 0)?);
    }
    Ok(components)
}

/// A plain layout, added to `component`. Without `has_objects` the objects are not there yet, and what stands in their
/// place says nothing.
fn plain(value: &[u8], mut component: Component, has_objects: bool) -> Result<Component, String> {
    let objects = match u32_at(value, 0)? {
        V1 => 32,
        V3 => 48,
        other => return Err(format!("lov: the magic number {other:#x} is not known")),
    };
    let pattern = u32_at(value, 4)?;
    let (unit, count) = (u32_at(value, 24)?, u16_at(value, 28)?);
    match pattern & !(OVERSTRIPED | RELEASED) {
        RAID0 => component.flags.push("raid0".to_owned()),
        MDT => {
            component.flags.push("mdt".to_owned());
            return Ok(component);
        }
        other => return Err(format!("lov: the pattern {other:#x} is not known")),
    }
    if pattern & OVERSTRIPED != 0 {
        component.flags.push("overstriped".to_owned());
    }
    if pattern & RELEASED != 0 {
        component.flags.push("released".to_owned());
        return Ok(component);
    }
    if !has_objects {
        return Ok(component);
    }
    if unit == 0 || count == 0 {
        return Err("lov: no stripes".to_owned());
    }
    for column in 0..usize::from(count) {
        let at = objects + column * OBJECT;
        let index = u32_at(value, at + 20)?;
        if index > 0xffff {
            return Err(format!("lov: {index} is no index of an OST"));
        }
        // The identity is that of the object on its OST, in one of two forms: the number is its first half.
        let object = Some(format!("{:#x}", u64_at(value, at)?));
        let target = Some(ost(index.into()));
        component.placements.push(Placement { column: column as u64, copy: 0, target, object, state: None });
    }
    component.striping = Some(Striping { unit: unit.into(), columns: count.into(), object: None });
    Ok(component)
}

fn bytes_at<const N: usize>(value: &[u8], at: usize) -> Result<[u8; N], String> {
    let end = at.checked_add(N).ok_or("lov: too short")?;
    let bytes = value.get(at..end).ok_or("lov: too short")?;
    bytes.try_into().map_err(|_| "lov: too short".to_owned())
}

fn u16_at(value: &[u8], at: usize) -> Result<u16, String> {
    bytes_at(value, at).map(u16::from_le_bytes)
}

fn u32_at(value: &[u8], at: usize) -> Result<u32, String> {
    bytes_at(value, at).map(u32::from_le_bytes)
}

fn u64_at(value: &[u8], at: usize) -> Result<u64, String> {
    bytes_at(value, at).map(u64::from_le_bytes)
}
