use super::*;
use proptest::prelude::*;

fn code(text: &str) -> Code {
    text.parse().unwrap()
}

#[test]
fn encode_takes_all_data_and_makes_all_redundancy() {
    let code = code("5+3");
    let plan = code.encode_plan().unwrap();
    assert_eq!((plan.inputs(), plan.outputs()), (&[0, 1, 2, 3, 4][..], &[5, 6, 7][..]));
    assert_eq!(plan.matrix().unwrap(), code.redundancy().unwrap());
    let some = code.encode_columns_plan(&[7, 5]).unwrap();
    assert_eq!(some.outputs(), [7, 5]);
    assert_eq!(some.matrix().unwrap().row(0), code.redundancy().unwrap().row(2));
}

#[test]
fn repair_prefers_data_then_simple_redundancy() {
    // RAID-Z: P needs no multiplication, Q and R do.
    let code = code("raidz:6+3");
    assert_eq!(code.repair_plan(&[2], &[0, 1, 3, 4, 5, 6, 7, 8]).unwrap().inputs(), [0, 1, 3, 4, 5, 6]);
    assert_eq!(code.repair_plan(&[2, 6], &[0, 1, 3, 4, 5, 7, 8]).unwrap().inputs(), [0, 1, 3, 4, 5, 7]);
    // A lost redundancy block alone is encoding.
    let parity_only = code.repair_plan(&[7], &[0, 1, 2, 3, 4, 5, 6, 8]).unwrap();
    assert_eq!(parity_only, code.encode_columns_plan(&[7]).unwrap());
}

#[test]
fn repair_follows_costs() {
    let code = code("4+2");
    let plan = code.repair_plan_by_cost(&[0], &[1, 2, 3, 4, 5], |column| u64::from(column == 2)).unwrap();
    assert_eq!(plan.inputs(), [1, 3, 4, 5], "the far column 2 is left alone");
    let all = code.repair_plan_by_cost(&[0], &[1, 2, 3, 4], |column| u64::from(column == 2)).unwrap();
    assert_eq!(all.inputs(), [1, 2, 3, 4], "unless it is needed");
}

#[test]
fn one_pass_repairs_data_and_redundancy_together() {
    let code = code("10+4");
    let plan = code.repair_plan(&[12, 3, 0, 10], &[1, 2, 4, 5, 6, 7, 8, 9, 11, 13]).unwrap();
    assert_eq!(plan.outputs(), [12, 3, 0, 10], "in the order asked for");
    assert_eq!(plan.inputs(), [1, 2, 4, 5, 6, 7, 8, 9, 11, 13]);
    // By definition: [generator rows of the sources] · x = data, so M · G[sources] = G[lost].
    let generator = |column: usize, j: usize| match column.checked_sub(10) {
        None => u64::from(column == j),
        Some(row) => code.redundancy().unwrap().at(row, j),
    };
    let field = code.field();
    let sources = Matrix::from_fn(field, 10, 10, |i, j| generator(plan.inputs()[i], j)).unwrap();
    let lost = Matrix::from_fn(field, 4, 10, |i, j| generator(plan.outputs()[i], j)).unwrap();
    assert_eq!(plan.matrix().unwrap().mul(&sources).unwrap(), lost);
}

#[test]
fn sources_that_contribute_nothing_are_not_read() {
    // Without losses nothing is read.
    let plan = code("4+2").repair_plan(&[], &[0, 1, 2, 3]).unwrap();
    assert!(plan.inputs().is_empty() && plan.outputs().is_empty());
    // With k = 1 every block is a multiple of every other.
    assert_eq!(code("1+3").repair_plan(&[0, 2], &[1, 3]).unwrap().inputs().len(), 1);
}

#[test]
fn invalid_requests_are_refused_with_reasons() {
    let code = code("4+2");
    let last = 5;
    assert_eq!(code.repair_plan(&[0, 1, 2], &[3, 4, 5]), Err(Error::NotEnoughBlocks { need: 4, have: 3 }));
    assert_eq!(code.repair_plan(&[6], &[0, 1, 2, 3]), Err(Error::NoSuchColumn { column: 6, last }));
    assert_eq!(code.repair_plan(&[0], &[1, 2, 3, 9]), Err(Error::NoSuchColumn { column: 9, last }));
    assert_eq!(code.repair_plan(&[0, 0], &[1, 2, 3, 4]), Err(Error::ColumnTwice { column: 0 }));
    assert_eq!(code.repair_plan(&[0], &[1, 1, 2, 3, 4]), Err(Error::ColumnTwice { column: 1 }));
    assert_eq!(code.repair_plan(&[1], &[1, 2, 3, 4]), Err(Error::LostAndSurviving { column: 1 }));
    let wrong = |column, is, wanted| Err(Error::WrongKindOfColumn { column, is, wanted });
    assert_eq!(code.encode_columns_plan(&[3]), wrong(3, "data", "redundancy"));
    assert_eq!(code.update_plan(&[4]), wrong(4, "redundancy", "data"));
    assert_eq!(code.partial_plan(5), wrong(5, "redundancy", "data"));
    assert_eq!(code.update_plan(&[2, 2]), Err(Error::ColumnTwice { column: 2 }));
    let over = Plan::multiply(Field::GF4, 16, Mode::Write);
    assert_eq!(over, Err(Error::NotAnElement { value: 16, w: 4 }));
}

#[test]
fn a_code_without_redundancy_has_an_empty_plan() {
    let plan = code("7+0").encode_plan().unwrap();
    assert_eq!((plan.inputs().len(), plan.outputs().len()), (7, 0));
    assert!(code("7+0").repair_plan(&[3], &[0, 1, 2, 4, 5, 6]).is_err());
}

/// Planning must stay usable at the largest shapes: no step is quadratic in the number of blocks.
#[test]
fn large_shapes_are_planned() {
    let code = code("cauchy:60000+2:w16");
    let surviving: Vec<usize> = (0..60_002).filter(|&column| column != 17 && column != 60_000).collect();
    let plan = code.repair_plan(&[17, 60_000], &surviving).unwrap();
    assert_eq!(plan.inputs().len(), 60_000);
}

/// The product of a structure's factors, solve · (C | added), which must equal the exchanged form.
fn multiplied_out(plan: &Plan) -> Option<Matrix> {
    let Structure { cauchy, added, solve, exchanged } = plan.structure()?;
    assert_eq!(exchanged.is_some(), solve.is_some());
    if let Some(exchanged) = exchanged {
        assert_eq!(&exchanged.matrix(plan.field()).unwrap(), plan.matrix().unwrap());
    }
    let c = cauchy.matrix(plan.field()).unwrap();
    assert_eq!(added.len(), c.rows());
    let first = Matrix::from_fn(plan.field(), c.rows(), plan.inputs().len(), |i, j| {
        let entry = if j < c.columns() { c.at(i, j) } else { 0 };
        entry ^ u64::from(added[i] == Some(j))
    })
    .unwrap();
    assert!(solve.as_ref().is_none_or(|solve| !solve.is_identity()));
    Some(solve.as_ref().map_or_else(|| first.clone(), |solve| solve.mul(&first).unwrap()))
}

#[test]
fn plans_of_codes_with_points_have_factors() {
    for text in [
        "10+4",
        "3+7",
        "cauchy:10+4:w16",
        "cauchy-isal:6+3",
        "rs-vandermonde:9+3",
        "13+3:w4",
        "subspace:6+3:w5:packets=8",
    ] {
        let code = code(text);
        let columns = [code.k() + 2, code.k()];
        for plan in [
            code.encode_plan().unwrap(),
            code.encode_columns_plan(&columns).unwrap(),
            code.update_plan(&[2, 0]).unwrap(),
            code.partial_plan(1).unwrap(),
        ] {
            assert_eq!(multiplied_out(&plan).as_ref(), Some(plan.matrix().unwrap()), "{text}");
            let structure = plan.structure().unwrap();
            assert_eq!(structure.cauchy.columns.len(), plan.inputs().len());
            assert!(structure.solve.is_none() && structure.added.iter().all(Option::is_none));
        }
    }
    for text in ["cauchy-good:6+3", "raidz:6+3", "rs-isal:6+3"] {
        assert_eq!(code(text).encode_plan().unwrap().structure(), None, "{text}");
        assert_eq!(code(text).repair_plan(&[0], &[1, 2, 3, 4, 5, 6]).unwrap().structure(), None, "{text}");
    }
}

#[test]
fn a_repair_solves_for_the_lost_data() {
    let code = code("6+3");
    let points = code.points().unwrap();
    // Data 1 is lost and solved for with redundancy 0; redundancy 2 is the first output.
    let plan = code.repair_plan(&[8, 1], &[0, 2, 3, 4, 5, 6]).unwrap();
    let structure = plan.structure().unwrap();
    assert_eq!(structure.cauchy, points.select(&[0, 2], &[0, 2, 3, 4, 5]));
    assert_eq!(structure.added, [Some(5), None]);
    let (a, field) = (code.redundancy().unwrap(), code.field());
    let inverse = field.inv(a.at(0, 1)).unwrap();
    let solve = structure.solve.as_ref().unwrap();
    assert_eq!((solve.row(0), solve.row(1)), (&[field.mul(a.at(2, 1), inverse), 1][..], &[inverse, 0][..]));
    // Lost redundancy alone is encoding, with its structure; one block of a parity is solved by adding.
    let parity = code.repair_plan(&[7], &[0, 1, 2, 3, 4, 5]).unwrap();
    assert_eq!(parity, code.encode_columns_plan(&[7]).unwrap());
    let xor = "6+1".parse::<Code>().unwrap().repair_plan(&[2], &[0, 1, 3, 4, 5, 6]).unwrap();
    assert_eq!(xor.structure().unwrap().solve, None);
    assert_eq!(xor.structure().unwrap().added, [Some(5)]);
    // No outputs, no structure.
    assert_eq!(code.repair_plan(&[], &[0, 1, 2, 3, 4, 8]).unwrap().structure(), None);
}

fn any_code() -> impl Strategy<Value = Code> {
    let families = vec!["subspace", "cauchy", "rs-vandermonde", "cauchy-good"];
    let shapes = (proptest::sample::select(families), 1..12usize, 0..9usize);
    (shapes, proptest::sample::select(vec![5u32, 8, 16, 32, 64])).prop_map(|((family, k, m), w)| {
        let layout = if w == 5 { ":packets=1" } else { "" };
        code(&format!("{family}:{k}+{m}:w{w}{layout}"))
    })
}

proptest! {
    /// By definition, M · G[sources] = G[lost]; and a code with points says how M factors.
    #[test]
    fn repairs_are_right_and_factor(code in any_code(), order: [u64; 32], lost in 0..9usize, asked in 0..9usize) {
        let mut columns: Vec<usize> = (0..code.blocks()).collect();
        columns.sort_by_key(|&column| order[column]);
        let (lost, surviving) = columns.split_at(lost.min(code.m()));
        let wanted = &lost[..asked.min(lost.len())];
        let plan = code.repair_plan(wanted, surviving).unwrap();
        let generator = |columns: &[usize]| {
            Matrix::from_fn(code.field(), columns.len(), code.k(), |i, j| match columns[i].checked_sub(code.k()) {
                None => u64::from(columns[i] == j),
                Some(row) => code.redundancy().unwrap().at(row, j),
            })
            .unwrap()
        };
        let made = plan.matrix().unwrap().mul(&generator(plan.inputs())).unwrap();
        prop_assert_eq!(made, generator(plan.outputs()));
        prop_assert_eq!(plan.structure().is_some(), code.points().is_some() && !wanted.is_empty());
        if let Some(product) = multiplied_out(&plan) {
            prop_assert_eq!(&product, plan.matrix().unwrap());
        }
    }
}

#[test]
fn reconstructions_refuse_columns_that_are_not_lost_data() {
    use crate::raidz::Reconstruction;
    let code = code("raidz:4+2");
    let refused = |lost: &[usize]| Reconstruction::P.plan(&code, lost).unwrap_err();
    assert_eq!(refused(&[77]), Error::NoSuchColumn { column: 77, last: 5 });
    assert_eq!(refused(&[4]), Error::WrongKindOfColumn { column: 4, is: "redundancy", wanted: "data" });
    assert_eq!(Reconstruction::PQ.plan(&code, &[0, 0]).unwrap_err(), Error::ColumnTwice { column: 0 });
    assert_eq!(Reconstruction::R.plan(&code, &[0]).unwrap_err(), Error::NoSuchColumn { column: 6, last: 5 });
}

#[test]
fn a_plan_of_points_has_their_matrix() {
    let code: Code = "cauchy-isal:10+4".parse().unwrap();
    let form = code.points().unwrap();
    let plan = Plan::of_points(Field::GF8, form, Layout::Words, Mode::Write).unwrap();
    assert_eq!(plan.matrix().unwrap(), code.redundancy().unwrap());
    assert_eq!(plan.points(), Some(form));
    let mut twice = form.clone();
    twice.rows[1] = twice.rows[0];
    let refused = Plan::of_points(Field::GF8, &twice, Layout::Words, Mode::Write);
    assert_eq!(refused, Err(Error::PointTwice { at: twice.rows[0].at }));
}
