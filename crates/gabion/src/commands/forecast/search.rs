//! Codes that are safe and cheap enough.

use super::{Setting, percent, print_table};
use gabion::exit::Outcome;
use gabion::report::forecast::{CandidateReport, SearchReport};
use gabion_forecast::exact::{float, whole};
use gabion_forecast::{Candidate, Model, Obstacle, ParameterError, Rational, SearchGoal, candidates};

pub(super) fn run(
    disks: u32,
    grouped: bool,
    at_most: Option<Rational>,
    overhead: Option<Rational>,
    all: bool,
    setting: &Setting,
) -> anyhow::Result<Outcome> {
    let range = whole(0)..=whole(1);
    if let Some(chance) = at_most.as_ref().filter(|chance| !range.contains(chance)) {
        return Err(ParameterError::NoShare { what: "a chance of loss", value: float(chance) }.into());
    }
    if let Some(share) = overhead.as_ref().filter(|share| **share < whole(0)) {
        return Err(ParameterError::NotPositive { what: "an overhead", value: float(share) }.into());
    }
    let wish = SearchGoal { disks, grouped, at_most, overhead };
    // Gabion verifies all reads of a rebuild.
    let found = candidates(&wish, Model::Checked, &setting.parameters, setting.reading)?;
    let (good, bad): (Vec<&Candidate>, Vec<&Candidate>) = found.iter().partition(|it| it.qualifies());
    if setting.json {
        let listed = |these: &[&Candidate]| these.iter().map(|it| report(it, setting)).collect();
        setting.print_json(SearchReport {
            disks,
            grouped,
            at_most_per_year: wish.at_most.as_ref().map(float),
            most_overhead: wish.overhead.as_ref().map(float),
            qualify: listed(&good),
            others: listed(&bad),
        });
    } else {
        print(&wish, &good, &bad, all, setting);
    }
    Ok(if good.is_empty() { Outcome::Found } else { Outcome::Fine })
}

fn print(wish: &SearchGoal, good: &[&Candidate], bad: &[&Candidate], all: bool, setting: &Setting) {
    setting.introduce();
    let how =
        if wish.grouped { "in groups as wide as the code" } else { "with stripes spread over all of them" };
    outln!("{} disks, {how}, verified rebuilds.", wish.disks);
    if good.is_empty() {
        outln!("No code qualifies.");
    } else {
        outln!("{} codes qualify, the cheapest first:", good.len());
        let head = ["code", "overhead", "survives", "mean years", "loss per year", "nines"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for Candidate { forecast: it, .. } in good {
            rows.push(vec![
                it.scheme.to_string(),
                percent(&it.scheme.overhead()),
                format!("{} lost", it.scheme.redundancy()),
                setting.number(&it.promise.mean_years()),
                setting.number(&it.promise.per_year()),
                format!("{:.1}", it.promise.nines()),
            ]);
        }
        print_table(&rows);
    }
    outln!("{} codes do not:", bad.len());
    for group in groups(bad, all) {
        outln!("  {}", reason(&group, wish, setting));
    }
}

/// Codes with equal redundancy and equal reason are joined to a range, from few to many data blocks.
fn groups<'a>(bad: &[&'a Candidate], all: bool) -> Vec<Vec<&'a Candidate>> {
    let mut sorted = bad.to_vec();
    sorted.sort_by_key(|it| (it.forecast.scheme.redundancy(), it.forecast.scheme.data()));
    let together = |a: &&Candidate, b: &&Candidate| {
        let (left, right) = (a.forecast.scheme, b.forecast.scheme);
        !all && left.redundancy() == right.redundancy()
            && left.data() + 1 == right.data()
            && a.obstacles == b.obstacles
    };
    sorted.chunk_by(together).map(<[&Candidate]>::to_vec).collect()
}

fn reason(group: &[&Candidate], wish: &SearchGoal, setting: &Setting) -> String {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return String::new() };
    let (few, many) = (first.forecast.scheme, last.forecast.scheme);
    let name = if few == many { few.to_string() } else { format!("{few} to {many}") };
    let between = |low: String, high: String| if low == high { low } else { format!("{low} to {high}") };
    let reasons = first.obstacles.iter().map(|obstacle| match obstacle {
        Obstacle::Overhead => {
            let most = wish.overhead.as_ref().map(percent).unwrap_or_default();
            format!(
                "overhead {} is over {most}",
                between(percent(&many.overhead()), percent(&few.overhead()))
            )
        }
        Obstacle::Loss => {
            let loss = |it: &Candidate| setting.number(&it.forecast.promise.per_year());
            let most = wish.at_most.as_ref().map(|most| setting.number(most)).unwrap_or_default();
            format!("loss of {} per year is over {most}", between(loss(first), loss(last)))
        }
        Obstacle::Uneven => format!("{} disks do not come out even", wish.disks),
    });
    format!("{name}: {}", reasons.collect::<Vec<_>>().join("; "))
}

fn report(it: &Candidate, setting: &Setting) -> CandidateReport {
    let scheme = it.forecast.scheme;
    let reason = |obstacle: &Obstacle| match obstacle {
        Obstacle::Overhead => "overhead",
        Obstacle::Loss => "loss",
        Obstacle::Uneven => "uneven",
    };
    CandidateReport {
        code: scheme.to_string(),
        overhead: float(&scheme.overhead()),
        groups: scheme.groups(),
        checked: setting.promise_report(&it.forecast.promise),
        fails: it.obstacles.iter().map(reason).collect(),
    }
}
