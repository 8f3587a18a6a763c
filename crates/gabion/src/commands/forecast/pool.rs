//! Forecast for the files of a pool, by the placement of their columns.

use super::{Setting, print_table};
use crate::commands::pool::Names;
use crate::output::{bytes, files};
use anyhow::Context;
use clap::ValueEnum;
use gabion::exit::Outcome;
use gabion::report::FileFailure;
use gabion::report::forecast::{FileClassReport, PlacementReport, PoolForecastReport, TogetherReport};
use gabion_forecast::exact::float;
use gabion_forecast::{Layout, Placement, Promise};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::coder::Coders;
use gabion_vault::pool_rebuild::layouts::{FileLayout, each_layout};
use gabion_vault::pool_rebuild::survey::TargetStates;
use gabion_vault::storage::pool::config::TargetName;
use gabion_vault::storage::pool::{Options, Pool};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Unit of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Unit {
    /// Single targets
    Target,
    /// Whole domains; --mtbf is then that of a domain
    Domain,
}

impl Unit {
    fn word(self) -> &'static str {
        match self {
            Unit::Target => "target",
            Unit::Domain => "domain",
        }
    }

    fn words(self, count: usize) -> String {
        format!("{count} {}{}", self.word(), if count == 1 { "" } else { "s" })
    }
}

/// Files with the same protection.
struct Class {
    code: Option<String>,
    tolerated: usize,
    files: u64,
    bytes: u64,
    layouts: Vec<Layout>,
}

/// Contents of a pool.
struct Found {
    units: usize,
    classes: Vec<Class>,
    lost: u64,
    degraded: u64,
    /// Columns that share a domain with others of their file.
    crowded: u64,
    unreadable: Vec<(Vec<u8>, String)>,
}

pub(super) fn run(name: &OsStr, names: &Names, unit: Unit, setting: &Setting) -> anyhow::Result<Outcome> {
    let pool = Pool::open(name, names.registry().as_ref(), Options::default())
        .with_context(|| format!("pool {}", DisplayPath::bytes(name.as_bytes())))?;
    let found = look(&pool, unit)?;
    let promise = |layouts: Vec<Layout>| -> anyhow::Result<(Placement, Promise)> {
        let placement = Placement::new(found.units, layouts)?;
        let chain = placement.chain(&setting.parameters)?;
        Ok((placement, Promise::of(&chain, 1)))
    };
    let mut alone = Vec::new();
    for class in &found.classes {
        alone.push((class, promise(class.layouts.clone())?));
    }
    let all: Vec<Layout> = found.classes.iter().flat_map(|class| class.layouts.clone()).collect();
    let together = if all.is_empty() { None } else { Some(promise(all)?) };
    let unprotected: u64 =
        found.classes.iter().filter(|class| class.tolerated == 0).map(|class| class.files).sum();
    let config = pool.config();
    match setting.json {
        true => {
            let report = |(placement, promise): &(Placement, Promise)| {
                PlacementReport::new(placement, promise, setting.digits)
            };
            let classes = alone.iter().map(|(class, it)| FileClassReport {
                code: class.code.as_deref(),
                tolerated: class.tolerated,
                files: class.files,
                bytes: class.bytes,
                placement: report(it),
            });
            setting.print_json(PoolForecastReport {
                pool: &config.name,
                fails: unit.word(),
                units: found.units,
                classes: classes.collect(),
                together: together.as_ref().map(|it| TogetherReport {
                    rebuild_reads_bytes: float(it.0.read_bytes()),
                    placement: report(it),
                }),
                unprotected_files: unprotected,
                lost_files: found.lost,
                degraded_files: found.degraded,
                crowded_files: found.crowded,
                unreadable: found.unreadable.iter().map(FileFailure::new).collect(),
            });
        }
        false => {
            outln!(
                "pool {}: {} that fail each on its own, {}, all blocks verified.",
                config.name,
                unit.words(found.units),
                setting.parameters.words_without_capacity()
            );
            print(&alone, together.as_ref(), unit, setting);
        }
    }
    for (path, why) in &found.unreadable {
        errln!("gabion: {}: {why}", DisplayPath::bytes(path));
    }
    for (count, words) in [
        (unprotected, "can lose nothing: protect the pool, or rebuild it"),
        (found.degraded, "miss columns: rebuild the pool"),
        (found.crowded, "have several columns in one domain"),
        (found.lost, "are lost already and are not counted"),
    ] {
        if count > 0 {
            errln!("gabion: warning: {} {words}", files(count));
        }
    }
    Ok(match (found.lost, unprotected + found.degraded + found.unreadable.len() as u64) {
        (1.., _) => Outcome::Unrecoverable,
        (0, 1..) => Outcome::Found,
        (0, 0) => Outcome::Fine,
    })
}

fn look(pool: &Pool, unit: Unit) -> anyhow::Result<Found> {
    let config = pool.config();
    let places = TargetStates::of(pool);
    // Missing columns cannot fail again.
    let members = config.target.iter().filter(|member| places.state(&member.name).has_valid_content());
    let domain: BTreeMap<&str, &str> =
        members.map(|member| (member.name.as_str(), member.domain.as_str())).collect();
    let mut names: Vec<&str> = match unit {
        Unit::Target => domain.keys().copied().collect(),
        Unit::Domain => domain.values().copied().collect(),
    };
    names.sort_unstable();
    names.dedup();
    let index = |target: &TargetName| {
        let name = match unit {
            Unit::Target => target.as_str(),
            Unit::Domain => domain.get(target.as_str()).copied().unwrap_or(target),
        };
        names.binary_search(&name).ok()
    };
    let mut found = Found {
        units: names.len(),
        classes: Vec::new(),
        lost: 0,
        degraded: 0,
        crowded: 0,
        unreadable: Vec::new(),
    };
    let mut classes: BTreeMap<(Option<String>, usize), Class> = BTreeMap::new();
    each_layout(pool, &Coders::new()?, &mut |path, layout| {
        let layout: FileLayout = match layout {
            Ok(layout) if layout.size > 0 => layout,
            Ok(_) => return,
            Err(error) => return found.unreadable.push((path, error.to_string())),
        };
        let Some(tolerated) = layout.tolerated() else {
            found.lost += 1;
            return;
        };
        found.degraded += u64::from(layout.data_gone + layout.redundancy_gone > 0);
        let targets: Vec<&TargetName> = layout.data.iter().chain(&layout.redundancy).collect();
        let domains: BTreeSet<&str> =
            targets.iter().map(|target| domain.get(target.as_str()).copied().unwrap_or(target)).collect();
        found.crowded += u64::from(domains.len() < targets.len());
        let columns = targets.iter().copied().filter_map(index).collect();
        let needed = layout.data.len() + layout.data_gone;
        let class = classes.entry((layout.code.clone(), tolerated)).or_insert_with(|| Class {
            code: layout.code.clone(),
            tolerated,
            files: 0,
            bytes: 0,
            layouts: Vec::new(),
        });
        class.files += 1;
        class.bytes += layout.size;
        class.layouts.push(Layout { columns, tolerated, needed, column_bytes: layout.column_bytes });
    })?;
    found.classes = classes.into_values().collect();
    Ok(found)
}

fn print(
    alone: &[(&Class, (Placement, Promise))],
    together: Option<&(Placement, Promise)>,
    unit: Unit,
    setting: &Setting,
) {
    let Some((placement, promise)) = together else {
        outln!("There are no files with content: nothing can be lost.");
        return;
    };
    let head = ["code", "files", "bytes", "layouts", "survives any", "mean years", "loss per year", "nines"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut row = |name: String, count: u64, size: u64, (placement, promise): &(Placement, Promise)| {
        rows.push(vec![
            name,
            count.to_string(),
            bytes(size),
            placement.layouts().to_string(),
            unit.words(placement.fewest_fatal() - 1),
            setting.number(&promise.mean_years()),
            setting.number(&promise.per_year()),
            format!("{:.1}", promise.nines()),
        ]);
    };
    for (class, it) in alone {
        row(class.code.clone().unwrap_or_else(|| "no redundancy".to_owned()), class.files, class.bytes, it);
    }
    let (count, size) =
        alone.iter().fold((0, 0), |sum, (class, _)| (sum.0 + class.files, sum.1 + class.bytes));
    let all = (placement.clone(), promise.clone());
    row("together".to_owned(), count, size, &all);
    print_table(&rows);
    outln!(
        "The rebuild of one {} reads {} on average. A line is about the first file of that kind to be lost.",
        unit.word(),
        bytes(float(placement.read_bytes()) as u64)
    );
}
