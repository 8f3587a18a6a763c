use super::*;

fn code(text: &str) -> Code {
    text.parse().unwrap()
}

#[test]
fn encode_takes_all_data_and_makes_all_redundancy() {
    let code = code("5+3");
    let plan = code.encode_plan().unwrap();
    assert_eq!((plan.inputs(), plan.outputs()), (&[0, 1, 2, 3, 4][..], &[5, 6, 7][..]));
    assert_eq!(plan.matrix(), code.redundancy());
    let some = code.encode_columns_plan(&[7, 5]).unwrap();
    assert_eq!(some.outputs(), [7, 5]);
    assert_eq!(some.matrix().row(0), code.redundancy().row(2));
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
        Some(row) => code.redundancy().at(row, j),
    };
    let field = code.field();
    let sources = Matrix::from_fn(field, 10, 10, |i, j| generator(plan.inputs()[i], j)).unwrap();
    let lost = Matrix::from_fn(field, 4, 10, |i, j| generator(plan.outputs()[i], j)).unwrap();
    assert_eq!(plan.matrix().mul(&sources).unwrap(), lost);
}

#[test]
fn sources_that_contribute_nothing_are_not_read() {
    // Nothing lost is nothing to read.
    let plan = code("4+2").repair_plan(&[], &[0, 1, 2, 3]).unwrap();
    assert!(plan.inputs().is_empty() && plan.outputs().is_empty());
    // With k = 1 every block is a multiple of the one.
    assert_eq!(code("1+3").repair_plan(&[0, 2], &[1, 3]).unwrap().inputs().len(), 1);
}

#[test]
fn impossible_requests_say_why() {
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
fn no_redundancy_is_a_plan_of_nothing() {
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
