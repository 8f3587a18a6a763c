//! The models compared with closed forms, textbook formulas, a plain solver and a simulation.

use gabion_forecast::exact::{decimal, float, log10, shown, whole};
use gabion_forecast::{
    Candidate, Chain, ChainError, Given, Layout, Model, Obstacle, Parameters, Placement, Promise, Rational,
    Reading, Scheme, SearchGoal, SimulationError, candidates, forecast, simulate,
};

fn number(text: &str) -> Rational {
    decimal(text).unwrap()
}

fn disks(failure_hours: &str, rebuild_hours: &str, read_errors: &str, silent: &str) -> Parameters {
    Given {
        failure_hours: number(failure_hours),
        rebuild_hours: number(rebuild_hours),
        read_errors: number(read_errors),
        silent: number(silent),
        ..Given::default()
    }
    .checked()
    .unwrap()
}

fn hours(disks: u32, erasures: u32, model: Model, parameters: &Parameters) -> Rational {
    let scheme = Scheme::tolerating(disks, erasures).unwrap();
    model.chain(scheme, parameters, Reading::Meant).unwrap().mean_hours()
}

/// The generator matrix without its last column, negated, as equation 1.4 has it, and the mean time by elimination.
fn by_elimination<T>(matrix: &mut [Vec<T>], one: &T) -> T
where
    T: Clone + PartialOrd,
    for<'a> &'a T:
        std::ops::Sub<T, Output = T> + std::ops::Mul<&'a T, Output = T> + std::ops::Div<&'a T, Output = T>,
{
    // Augmented by a column of ones; the first unknown is the result.
    let size = matrix.len();
    matrix.iter_mut().for_each(|row| row.push(one.clone()));
    for column in (1..size).rev() {
        let pivot = matrix[column].clone();
        for row in &mut matrix[..column] {
            let factor = &row[column] / &pivot[column];
            for (value, other) in row.iter_mut().zip(&pivot) {
                *value = &*value - &factor * other;
            }
        }
    }
    &matrix[0][size] / &matrix[0][0]
}

fn generator(chain: &Chain) -> Vec<Vec<Rational>> {
    let steps = chain.steps();
    let mut matrix = vec![vec![whole(0); steps.len()]; steps.len()];
    for (state, step) in steps.iter().enumerate() {
        let back = if state == 0 { whole(0) } else { step.back.clone() };
        matrix[state][state] += &step.onward + &step.fatal + &back;
        matrix[state][0] -= back;
        if state + 1 < steps.len() {
            matrix[state][state + 1] -= &step.onward;
        }
    }
    matrix
}

#[test]
fn closed_forms_of_small_codes() {
    let parameters = disks("1000", "10", "0", "0");
    let (failure, rebuild) = (number("0.001"), number("0.1"));
    for model in Model::ALL {
        // One disk, no redundancy: the lifetime of the disk. Three: a third of it.
        assert_eq!(hours(1, 0, model, &parameters), whole(1000));
        assert_eq!(hours(3, 0, model, &parameters), whole(1000) / whole(3));
        // Two copies: (3λ + μ) / 2λ².
        let mirror = (whole(3) * &failure + &rebuild) / (whole(2) * &failure * &failure);
        assert_eq!(hours(2, 1, model, &parameters), mirror);
        // Three disks, one tolerated: (5λ + μ) / 6λ².
        let raid = (whole(5) * &failure + &rebuild) / (whole(6) * &failure * &failure);
        assert_eq!(hours(3, 1, model, &parameters), raid);
        // Three copies. From two missing: to the start with μ, to the end with λ; from one missing: 2λ, μ.
        //   a_2 = 1/(λ+μ), c_2 = λ/(λ+μ); a_1 = (1 + 2λ a_2)/(2λ+μ), c_1 = 2λ c_2/(2λ+μ); T = (1 + 3λ a_1)/(3λ c_1)
        let both = &failure + &rebuild;
        let first = whole(2) * &failure + &rebuild;
        let time = (whole(1) + whole(2) * &failure / &both) / &first;
        let end = whole(2) * &failure * &failure / &both / &first;
        let copies = (whole(1) + whole(3) * &failure * time) / (whole(3) * &failure * end);
        assert_eq!(hours(3, 2, model, &parameters), copies);
    }
}

/// Textbook formulas are limits for failures that are much rarer than rebuilds.
#[test]
fn known_formulas_in_the_limit() {
    let parameters = disks("1e9", "10", "0", "0");
    let (failure, rebuild) = (number("1e-9"), number("0.1"));
    for count in [3u32, 5, 8, 14, 24] {
        let n = |less: u32| whole(u64::from(count - less));
        let raid5 = &rebuild / (n(0) * n(1) * &failure * &failure);
        let raid6 = &rebuild * &rebuild / (n(0) * n(1) * n(2) * &failure * &failure * &failure);
        for model in Model::ALL {
            for (erasures, known) in [(1, &raid5), (2, &raid6)] {
                let ratio = float(&(hours(count, erasures, model, &parameters) / known));
                assert!((ratio - 1.0).abs() < 1e-5, "{count} disks, {erasures} erasures: {ratio}");
            }
        }
    }
}

#[test]
fn without_read_errors_checks_change_nothing() {
    let parameters = disks("1e6", "12", "0", "0.01");
    for (count, erasures) in [(4, 1), (8, 2), (14, 4), (20, 6)] {
        let both = Model::ALL.map(|model| hours(count, erasures, model, &parameters));
        assert_eq!(both[0], both[1]);
    }
}

/// As stated in the thesis for figure 1-3: equal for one erasure; better with checks for more, much better for three
/// and more.
#[test]
fn checks_help_with_two_or_more_redundancy_blocks() {
    let parameters = Parameters::default();
    for count in 3..=24 {
        let [unchecked, checked] = Model::ALL.map(|model| hours(count, 1, model, &parameters));
        assert_eq!(unchecked, checked, "{count}");
        let mut before = 0.0;
        for erasures in 2..count.min(6) {
            let [unchecked, checked] = Model::ALL.map(|model| hours(count, erasures, model, &parameters));
            let gain = log10(&(checked / unchecked));
            assert!(gain > before, "{count} disks, {erasures} erasures: {gain}");
            before = gain;
        }
    }
    // Read literally, the two differ even for one erasure, contrary to the thesis.
    let scheme = Scheme::tolerating(8, 1).unwrap();
    let printed = Model::ALL.map(|model| forecast(scheme, model, &parameters, Reading::Printed).unwrap());
    assert_ne!(printed[0].promise, printed[1].promise);
}

#[test]
fn more_redundancy_is_better_and_more_disks_are_worse() {
    let parameters = Parameters::default();
    for model in Model::ALL {
        for count in 2..=20 {
            for erasures in 1..count {
                let these = hours(count, erasures, model, &parameters);
                assert!(these > hours(count, erasures - 1, model, &parameters), "{count} {erasures}");
                assert!(these > hours(count + 1, erasures, model, &parameters), "{count} {erasures}");
            }
        }
    }
}

/// The mean time is that of equation 1.4: the recurrence equals elimination exactly.
#[test]
fn recurrence_equals_elimination() {
    for parameters in [Parameters::default(), disks("500", "24", "1e-14", "0.2")] {
        for (count, erasures) in [(1, 0), (4, 1), (8, 2), (9, 3), (14, 4), (5, 4)] {
            for model in Model::ALL {
                for reading in [Reading::Meant, Reading::Printed] {
                    let scheme = Scheme::tolerating(count, erasures).unwrap();
                    let chain = model.chain(scheme, &parameters, reading).unwrap();
                    let by_elimination = by_elimination(&mut generator(&chain), &whole(1));
                    assert_eq!(chain.mean_hours(), by_elimination, "{scheme} {model:?} {reading:?}");
                }
            }
        }
    }
}

/// Floating point is accurate for few disks with frequent failures, and wrong for good codes, which is the reason for
/// fractions.
#[test]
fn floating_point_suffices_only_where_it_is_well_conditioned() {
    let float_hours = |scheme: Scheme, parameters: &Parameters| {
        let chain = Model::Checked.chain(scheme, parameters, Reading::Meant).unwrap();
        let mut matrix: Vec<Vec<f64>> =
            generator(&chain).iter().map(|row| row.iter().map(float).collect()).collect();
        by_elimination(&mut matrix, &1.0) / float(&chain.mean_hours())
    };
    let frequent = disks("500", "24", "1e-14", "0.2");
    for (count, erasures) in [(2, 1), (4, 1), (8, 2), (9, 3)] {
        let ratio = float_hours(Scheme::tolerating(count, erasures).unwrap(), &frequent);
        assert!((ratio - 1.0).abs() < 1e-9, "{count} {erasures}: {ratio}");
    }
    let rare = disks("1e8", "1", "1e-18", "0.01");
    let ratio = float_hours(Scheme::new(10, 6).unwrap(), &rare);
    assert!(ratio.is_nan() || (ratio - 1.0).abs() > 0.1, "{ratio}");
}

/// Values printed in the thesis: those that follow from its definitions and those that do not.
#[test]
fn printed_values() {
    let parameters = Parameters::default();
    assert_eq!(shown(&parameters.read_error(6), 2), "0.17");
    // h of table 1-2 is not that of its own parameters …
    assert_eq!(shown(&parameters.read_error(1), 5), "0.031493");
    // … but the result of double precision for one error in 1e16 bits, where 1 - 1e-16 is rounded to 1 - 2^-53.
    assert_eq!(format!("{:.7}", 1.0 - (1.0 - 1e-16_f64).powf(3.2e13)), "0.0035464");
    let enterprise = disks("1e6", "12", "1e-16", "0.01");
    assert_eq!(shown(&enterprise.read_error(1), 5), "0.0031949");
}

#[test]
fn simulated_disks_agree_with_the_chains() {
    let parameters = disks("400", "24", "2e-15", "0.3");
    let mut seen = 0;
    for (index, (count, erasures)) in [(1, 0), (2, 1), (5, 1), (8, 2), (6, 3), (4, 3)].into_iter().enumerate()
    {
        for model in Model::ALL {
            let scheme = Scheme::tolerating(count, erasures).unwrap();
            let promise = forecast(scheme, model, &parameters, Reading::Meant).unwrap().promise;
            let found = simulate(scheme, model, &parameters, &promise, 4000, 7 + index as u64).unwrap();
            let mean = float(promise.mean_hours());
            assert!(found.agrees(mean), "{scheme} {model:?}: {mean} {found:?}");
            // Tight enough to distinguish the models and the readings.
            assert!(found.high / found.low < 1.1);
            seen += 1;
        }
    }
    assert_eq!(seen, 12);
    let scheme = Scheme::tolerating(6, 3).unwrap();
    let promise = |model, reading| forecast(scheme, model, &parameters, reading).unwrap().promise;
    let checked = promise(Model::Checked, Reading::Meant);
    let found = simulate(scheme, Model::Checked, &parameters, &checked, 4000, 1).unwrap();
    assert!(!found.agrees(float(promise(Model::Unchecked, Reading::Meant).mean_hours())));
    assert!(!found.agrees(float(promise(Model::Checked, Reading::Printed).mean_hours())));
}

/// Also codes on more disks than blocks, and several groups of disks.
#[test]
fn simulated_pools_agree_with_the_chains() {
    let parameters = disks("900", "24", "1e-15", "0.3");
    let code = Scheme::new(3, 2).unwrap();
    for scheme in [code.spread_over(12).unwrap(), code.grouped_on(15).unwrap()] {
        let promise = forecast(scheme, Model::Checked, &parameters, Reading::Meant).unwrap().promise;
        let found = simulate(scheme, Model::Checked, &parameters, &promise, 4000, 3).unwrap();
        // The first loss among several groups is slightly later than a third of the time of one, since all start with
        // new disks.
        let mean = float(promise.mean_hours());
        assert!(
            found.agrees(mean) || (scheme.groups() > 1 && (found.mean_hours / mean - 1.0).abs() < 0.1),
            "{found:?} {mean}"
        );
    }
}

#[test]
fn too_rare_losses_are_refused() {
    let scheme = Scheme::new(10, 4).unwrap();
    let parameters = disks("1e6", "12", "1e-17", "0.01");
    let promise = forecast(scheme, Model::Checked, &parameters, Reading::Meant).unwrap().promise;
    let answer = simulate(scheme, Model::Checked, &parameters, &promise, 1000, 1);
    assert!(matches!(answer, Err(SimulationError::TooRare { .. })), "{answer:?}");
    let answer = simulate(scheme, Model::Checked, &parameters, &promise, 1, 1);
    assert_eq!(answer, Err(SimulationError::TooFew(1)));
}

#[test]
fn years_and_nines_follow_from_the_mean() {
    // One disk with a mean of a thousand years.
    let parameters = disks("8760000", "12", "0", "0");
    let promise =
        forecast(Scheme::new(1, 0).unwrap(), Model::Checked, &parameters, Reading::Meant).unwrap().promise;
    assert_eq!(promise.mean_years(), whole(1000));
    assert!((float(&promise.per_year()) + (-0.001_f64).exp_m1()).abs() < 1e-15);
    assert!((promise.nines() - 3.0).abs() < 1e-3);
    let groups = Scheme::new(1, 0).unwrap().grouped_on(10).unwrap();
    let promise = forecast(groups, Model::Checked, &parameters, Reading::Meant).unwrap().promise;
    assert_eq!(promise.mean_years(), whole(100));
}

#[test]
fn search_goals_are_met_or_refused_with_a_reason() {
    let wish = SearchGoal {
        disks: 24,
        grouped: false,
        at_most: Some(number("1e-9")),
        overhead: Some(number("0.4")),
    };
    let parameters = disks("1e6", "12", "1e-17", "0.01");
    let all = candidates(&wish, Model::Checked, &parameters, Reading::Meant).unwrap();
    assert_eq!(all.len(), 300);
    let (good, bad): (Vec<&Candidate>, Vec<&Candidate>) = all.iter().partition(|it| it.qualifies());
    assert!(!good.is_empty() && !bad.is_empty());
    for it in &good {
        assert!(it.forecast.scheme.overhead() <= number("0.4"));
        assert!(it.forecast.promise.per_year() <= number("1e-9"));
    }
    for it in &bad {
        let expensive = it.forecast.scheme.overhead() > number("0.4");
        let unsafe_ = it.forecast.promise.per_year() > number("1e-9");
        assert_eq!(it.obstacles.contains(&Obstacle::Overhead), expensive);
        assert_eq!(it.obstacles.contains(&Obstacle::Loss), unsafe_);
        assert!(expensive || unsafe_);
    }
    assert!(all.is_sorted_by_key(|it| it.forecast.scheme.overhead()));
    let grouped =
        candidates(&SearchGoal { grouped: true, ..wish }, Model::Checked, &parameters, Reading::Meant)
            .unwrap();
    assert!(
        grouped
            .iter()
            .all(|it| 24 % it.forecast.scheme.width() == 0 || it.obstacles.contains(&Obstacle::Uneven))
    );
    assert!(
        candidates(
            &SearchGoal { disks: 2000, grouped: false, at_most: None, overhead: None },
            Model::Checked,
            &parameters,
            Reading::Meant
        )
        .is_err()
    );
}

/// A pool exactly as wide as its files is an array.
#[test]
fn a_pool_as_wide_as_its_files_is_an_array() {
    let parameters = Parameters::default();
    let layout =
        Layout { columns: (0..8).collect(), tolerated: 2, needed: 6, column_bytes: 4_000_000_000_000 };
    let pool = Placement::new(8, [layout]).unwrap();
    let array = Model::Checked.chain(Scheme::new(6, 2).unwrap(), &parameters, Reading::Meant).unwrap();
    assert_eq!(*pool.read_bytes(), whole(24_000_000_000_000));
    assert_eq!(pool.chain(&parameters).unwrap().mean_hours(), array.mean_hours());
}

/// Two files on disjoint disks: the pool loses data when either is lost. It is worse than each of its files and better
/// than spreading over all disks.
#[test]
fn a_pool_is_between_its_files_and_spreading_over_all_disks() {
    let parameters = disks("1e5", "24", "0", "0");
    let layout = |first: usize| Layout {
        columns: (first..first + 4).collect(),
        tolerated: 1,
        needed: 3,
        column_bytes: 1 << 30,
    };
    let years = |units, layouts: Vec<Layout>| {
        let chain = Placement::new(units, layouts).unwrap().chain(&parameters).unwrap();
        float(&Promise::of(&chain, 1).mean_years())
    };
    let one = years(4, vec![layout(0)]);
    let two = years(8, vec![layout(0), layout(4)]);
    assert!((two / one - 0.5).abs() < 0.01, "{one} {two}");
    let everywhere =
        years(8, (0..5).map(layout).chain([Layout { columns: (0..8).collect(), ..layout(0) }]).collect());
    assert!(everywhere < two);
    // A file without redundancy dominates the result.
    let naked = Layout { columns: vec![0], tolerated: 0, needed: 1, column_bytes: 1 };
    let bare = years(8, vec![layout(0), layout(4), naked]);
    assert!((bare / (1e5 / 8760.0) - 1.0).abs() < 0.1, "{bare}");
}

/// For more targets than can be counted, the bound is used: never better than counting.
#[test]
fn large_pools_are_bounded_from_below() {
    let parameters = Parameters::default();
    let layouts = |units: usize| {
        (0..units).map(move |first| Layout {
            columns: (0..14).map(|column| (first + column * 3) % units).collect(),
            tolerated: 4,
            needed: 10,
            column_bytes: 1 << 30,
        })
    };
    let large = Placement::new(200, layouts(200)).unwrap();
    assert_eq!(large.fewest_fatal(), 5);
    assert_eq!(large.fatal_share(5), None);
    let bounded = large.chain(&parameters).unwrap().mean_hours();
    let spread = Scheme::new(10, 4).unwrap().spread_over(200).unwrap();
    let worst = Model::Checked.chain(spread, &parameters, Reading::Meant).unwrap().mean_hours();
    // With 200 layouts most sets of five targets have no file in common.
    assert!(bounded > worst);
}

#[test]
fn chains_that_never_end_are_refused() {
    assert_eq!(Chain::new(Vec::new()), Err(ChainError::Empty));
    let step = |onward: u64, fatal: u64| gabion_forecast::Step {
        onward: whole(onward),
        fatal: whole(fatal),
        back: whole(1),
    };
    assert_eq!(Chain::new(vec![step(1, 0), step(0, 0)]), Err(ChainError::NoEnd));
    assert_eq!(Chain::new(vec![step(0, 0), step(1, 5)]), Err(ChainError::NoEnd));
    assert!(Chain::new(vec![step(1, 0), step(1, 0)]).is_ok());
    let negative = gabion_forecast::Step { onward: -whole(1), fatal: whole(0), back: whole(1) };
    assert_eq!(Chain::new(vec![negative]), Err(ChainError::Negative(0)));
}
