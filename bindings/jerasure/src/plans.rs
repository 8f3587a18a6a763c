//! Compiled plans of the process by their coefficients.

use gabion_engine::matrix::Matrix;
use gabion_engine::{Compiled, Engine, Field, Layout, Mode, Plan};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Width of the field, number of outputs, coefficients row by row.
type Key = (u32, usize, Vec<u64>);

/// Most plans that are kept.
const MAX_PLANS: usize = 256;

/// The plan of a matrix with `rows` rows; `None` if there is none.
pub(crate) fn plan(field: Field, rows: usize, coefficients: Vec<u64>) -> Option<Arc<Compiled>> {
    static PLANS: Mutex<Option<HashMap<Key, Arc<Compiled>>>> = Mutex::new(None);
    let key = (field.w(), rows, coefficients);
    let known = || PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(plan) = known().as_ref().and_then(|plans| plans.get(&key)) {
        return Some(plan.clone());
    }
    let columns = key.2.len() / rows.max(1);
    let matrix = Matrix::from_fn(field, rows, columns, |row, column| key.2[row * columns + column]).ok()?;
    let compiled = Engine::new(1).ok()?.compile(&Plan::new(matrix, Layout::Words, Mode::Write).ok()?).ok()?;
    let made = Arc::new(compiled);
    let mut plans = known();
    let plans = plans.get_or_insert_default();
    if plans.len() >= MAX_PLANS {
        plans.clear();
    }
    plans.insert(key, made.clone());
    Some(made)
}
