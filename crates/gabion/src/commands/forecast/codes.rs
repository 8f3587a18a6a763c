//! Comparison of codes.

use super::{Setting, percent, print_table};
use gabion::exit::Outcome;
use gabion::report::forecast::{CodeReport, CodesReport, ModelReport, SimulatedReport};
use gabion_forecast::exact::float;
use gabion_forecast::{Forecast, Model, Reading, Scheme, SchemeError, Simulated, simulate};

/// Well-known codes: RAID-5 and RAID-6 of eight disks, wide codes of large stores, copies.
pub(super) fn known() -> Result<Vec<Scheme>, SchemeError> {
    ["7+1", "6+2", "5+3", "10+4", "17+3", "2x", "3x"].into_iter().map(Scheme::parse).collect()
}

pub(super) fn run(codes: &[Scheme], play: Option<(u64, u64)>, setting: &Setting) -> anyhow::Result<Outcome> {
    anyhow::ensure!(
        play.is_none() || setting.reading == Reading::Meant,
        "a simulation follows the meaning of the equations: leave out --equations printed"
    );
    let mut found: Vec<(Scheme, Vec<Forecast>, Vec<Simulated>)> = Vec::new();
    for &scheme in codes {
        let forecasts: Vec<Forecast> =
            Model::ALL.into_iter().map(|model| setting.forecast(scheme, model)).collect::<Result<_, _>>()?;
        let mut played = Vec::new();
        if let Some((losses, seed)) = play {
            for it in &forecasts {
                played.push(simulate(scheme, it.model, &setting.parameters, &it.promise, losses, seed)?);
            }
        }
        found.push((scheme, forecasts, played));
    }
    match setting.json {
        true => {
            let codes = found.iter().map(|(scheme, all, played)| report(*scheme, all, played, setting));
            setting.print_json(CodesReport { codes: codes.collect() });
        }
        false => print(&found, setting),
    }
    let disagrees = |(_, all, played): &(Scheme, Vec<Forecast>, Vec<Simulated>)| {
        all.iter().zip(played).any(|(it, seen)| !seen.agrees(float(it.promise.mean_hours())))
    };
    Ok(if found.iter().any(disagrees) { Outcome::Found } else { Outcome::Fine })
}

fn print(found: &[(Scheme, Vec<Forecast>, Vec<Simulated>)], setting: &Setting) {
    setting.introduce();
    let head = ["code", "disks", "overhead", "survives", "rebuilds", "mean years", "loss per year", "nines"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (scheme, forecasts, _) in found {
        for it in forecasts {
            let first = it.model == Model::Unchecked;
            let once = |text: String| if first { text } else { String::new() };
            rows.push(vec![
                once(scheme.to_string()),
                once((scheme.disks() * scheme.groups()).to_string()),
                once(percent(&scheme.overhead())),
                once(format!("{} lost", scheme.redundancy())),
                it.model.name().to_owned(),
                setting.number(&it.promise.mean_years()),
                setting.number(&it.promise.per_year()),
                format!("{:.1}", it.promise.nines()),
            ]);
        }
    }
    print_table(&rows);
    for (scheme, forecasts, played) in found {
        for (it, seen) in forecasts.iter().zip(played) {
            let mean = float(it.promise.mean_hours());
            let word = if seen.agrees(mean) { "agrees" } else { "DISAGREES" };
            outln!(
                "simulated {scheme} {}: {:.5e} h, between {:.5e} and {:.5e} with 99 % ({} losses, {} events); computed {mean:.5e} h: {word}",
                it.model.name(),
                seen.mean_hours,
                seen.low,
                seen.high,
                seen.losses,
                seen.events
            );
        }
    }
}

fn report(scheme: Scheme, forecasts: &[Forecast], played: &[Simulated], setting: &Setting) -> CodeReport {
    let model = |(index, it): (usize, &Forecast)| {
        let simulated = played.get(index).map(|seen| SimulatedReport::new(seen, &it.promise));
        (it.model.name(), ModelReport { promise: setting.promise_report(&it.promise), simulated })
    };
    CodeReport {
        code: scheme.to_string(),
        data: scheme.data(),
        redundancy: scheme.redundancy(),
        disks: scheme.disks() * scheme.groups(),
        groups: scheme.groups(),
        overhead: float(&scheme.overhead()),
        models: forecasts.iter().enumerate().map(model).collect(),
    }
}
