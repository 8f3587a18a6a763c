//! Lustre: layouts as `lfs getstripe -y` prints them, the attribute `lustre.lov` ([`lov`]), and the states of OSTs.
//! A target is an OST, named `OSTxxxx` by its index in hexadecimal.

pub mod lov;

use crate::layout::{Component, Layout, Placement, State, Striping, Target};
use crate::lines::{key_value, number};

/// Attribute with the binary layout of a file.
pub const LOV: &str = "lustre.lov";

/// End of a component that reaches to the end of the file.
const EOF: u64 = u64::MAX;

/// Name of an OST.
pub fn ost(index: u64) -> String {
    format!("OST{index:04x}")
}

/// Fields of a component while its lines are read.
#[derive(Debug, Default)]
struct Fields {
    start: u64,
    end: Option<u64>,
    mirror: u32,
    flags: Vec<String>,
    pattern: String,
    unit: Option<u64>,
    count: Option<i64>,
    objects: Vec<(u64, Option<String>)>,
}

/// Decodes `lfs getstripe -y FILE`. Releases differ in how they nest: older ones print `component0:` blocks, later
/// ones a list `components:`, and a file with one layout has neither. Some print what is no valid YAML. So the lines
/// are read by their keys alone: `lcme_id` begins a component, `l_ost_idx` an object.
///
/// # Errors
/// What is wrong with it. A component that has no objects yet, or is on the MDT, has no placements.
pub fn layout(text: &str) -> Result<Layout, String> {
    let mut components: Vec<Fields> = Vec::new();
    let mut is_composite = false;
    let mut mirrors: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        let Some((key, value)) = key_value(line.strip_prefix("- ").unwrap_or(line)) else { continue };
        let unread = || format!("lfs getstripe: {key} is {:?}", value.chars().take(40).collect::<String>());
        if key == "lcme_id" {
            is_composite = true;
            components.push(Fields::default());
            continue;
        }
        let is_first = components.is_empty();
        if is_first && key.starts_with("lmm_") && !is_composite {
            components.push(Fields::default());
        }
        let Some(component) = components.last_mut() else { continue };
        match key {
            "lcme_mirror_id" => {
                // Numbers need not be without gaps. Directories have none.
                let at = mirrors.iter().position(|known| known == value).unwrap_or_else(|| {
                    mirrors.push(value.to_owned());
                    mirrors.len() - 1
                });
                component.mirror = u32::try_from(at).map_err(|_| unread())?;
            }
            "lcme_flags" => component.flags.extend(words(value).filter(|flag| flag != "0")),
            "lcme_extent.e_start" => component.start = number(value).ok_or_else(unread)?,
            "lcme_extent.e_end" => {
                component.end = match value {
                    "EOF" => None,
                    value => Some(number(value).ok_or_else(unread)?).filter(|end| *end != EOF),
                };
            }
            "lmm_pattern" => component.pattern = pattern_word(value).to_owned(),
            "lmm_stripe_size" => component.unit = Some(number(value).ok_or_else(unread)?),
            // -1: over all OSTs.
            "lmm_stripe_count" => component.count = Some(value.parse().map_err(|_| unread())?),
            "l_ost_idx" => component
                .objects
                .push((number(value).filter(|index| *index <= 0xffff).ok_or_else(unread)?, None)),
            "l_fid" => {
                let object = component.objects.last_mut().ok_or_else(unread)?;
                object.1 = Some(value.chars().take(80).collect());
            }
            _ => {}
        }
    }
    if components.is_empty() {
        return Err("lfs getstripe printed no layout".to_owned());
    }
    Ok(Layout { components: components.into_iter().map(Fields::component).collect::<Result<_, _>>()? })
}

impl Fields {
    fn component(self) -> Result<Component, String> {
        let mut component = Component::whole(self.start, self.end);
        if component.end.is_some_and(|end| end <= component.start) {
            return Err(format!("a component from {} to {} has no bytes", self.start, self.end.unwrap_or(0)));
        }
        component.mirror = self.mirror;
        component.flags = self.flags;
        component.flags.extend(words(&self.pattern));
        let has_pattern = |word: &str| words(&self.pattern).any(|part| part == word);
        if has_pattern("mdt") || has_pattern("released") || self.objects.is_empty() {
            return Ok(component);
        }
        let columns = self.objects.len() as u64;
        if self.count.is_some_and(|count| count > 0 && count as u64 != columns) {
            return Err(format!("{columns} objects are listed of {} stripes", self.count.unwrap_or(0)));
        }
        let unit = self.unit.filter(|unit| *unit > 0).ok_or("a component without a stripe size")?;
        component.striping = Some(Striping { unit, columns, object: None });
        let placement = |(column, (index, object)): (usize, (u64, Option<String>))| Placement {
            column: column as u64,
            copy: 0,
            target: Some(ost(index)),
            object,
            state: None,
        };
        component.placements = self.objects.into_iter().enumerate().map(placement).collect();
        Ok(component)
    }
}

/// Old releases print the number of a pattern.
fn pattern_word(value: &str) -> &str {
    match number(value) {
        Some(1) => "raid0",
        Some(0x100) => "mdt",
        Some(0x201) => "raid0,overstriped",
        _ => value,
    }
}

fn words(value: &str) -> impl Iterator<Item = String> {
    value
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .take(16)
        .map(|word| word.chars().take(40).collect())
}

/// Decodes `lfs osts PATH`:
///
/// ```text
/// OBDS:
/// 0: lustre-OST0000_UUID ACTIVE
/// 1: lustre-OST0001_UUID INACTIVE
/// ```
///
/// # Errors
/// No OST is listed.
pub fn targets(text: &str) -> Result<Vec<Target>, String> {
    let target = |line: &str| {
        let (index, rest) = key_value(line)?;
        let mut words = rest.split_whitespace();
        let name = words.next()?;
        Some(Target {
            name: ost(number(index).filter(|index| *index <= 0xffff)?),
            domain: None,
            state: match words.next() {
                Some("ACTIVE") => State::Online,
                Some("INACTIVE") => State::Offline,
                _ => State::Unknown,
            },
            labels: vec![name.chars().take(80).collect()],
            used: None,
            total: None,
        })
    };
    let found: Vec<Target> = text.lines().filter_map(target).collect();
    if found.is_empty() { Err("lfs osts listed no OST".to_owned()) } else { Ok(found) }
}

#[cfg(test)]
mod tests;
