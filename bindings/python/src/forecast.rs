//! Durability of codes on disks.

use crate::error::Error;
use gabion_forecast::exact::{float, shown};
use gabion_forecast::{Given, Model, Parameters, Rational, Reading, Scheme, quantity};
use pyo3::Python;
use pyo3::prelude::{Bound, FromPyObject, PyAny, PyErr, PyResult, pyclass, pyfunction};
use pyo3::types::PyAnyMethods;
use std::fmt;

/// Digits of numbers in texts.
const DIGITS: usize = 4;

/// Durability of a code.
#[pyclass(module = "gabion", frozen, get_all)]
pub(crate) struct Forecast {
    /// The code, such as `10+4` or `3x`.
    code: String,
    /// Number of disks.
    disks: u32,
    /// Redundancy per data.
    overhead: f64,
    /// Mean hours until data is lost; infinite if a float cannot hold it.
    mean_hours: f64,
    /// The same with four digits.
    mean_hours_text: String,
    /// Probability of a loss within a year.
    loss_per_year: f64,
    /// Nines of the probability of no loss within a year: 3 for 0.999.
    nines: f64,
}

#[pyo3::pymethods]
impl Forecast {
    fn __repr__(&self) -> String {
        format!(
            "Forecast({} on {} disks: mean {} h, {:.1} nines)",
            self.code, self.disks, self.mean_hours_text, self.nines
        )
    }
}

/// A quantity: a text with a unit, or a number.
pub(crate) struct Quantity(String);

impl<'a, 'py> FromPyObject<'a, 'py> for Quantity {
    type Error = PyErr;

    fn extract(object: pyo3::Borrowed<'a, 'py, PyAny>) -> PyResult<Quantity> {
        // The text of a float is the shortest decimal number that is read as that float.
        Ok(Quantity(object.str()?.to_string()))
    }
}

fn refused(error: impl fmt::Display) -> PyErr {
    Error::new_err(error.to_string())
}

/// The durability of a code (`10+4`, or `3x` for three copies) on disks.
///
/// The code is spread over `disks`, or used in groups as wide as the code with `grouped`. Quantities are texts with a
/// unit (`4TB`, `1000000h`, `2.12%`) or numbers (bytes, hours, shares). `afr`, the share of disks that fails per year,
/// takes the place of `mtbf`. With `checked` all blocks are verified when they are read, as Gabion does.
///
/// ```text
/// >>> import gabion
/// >>> gabion.forecast("10+4", disks=24, afr="2%").nines > gabion.forecast("10+2", disks=24, afr="2%").nines
/// True
///
/// ```
#[pyfunction]
#[pyo3(signature = (code, *, disks=None, grouped=false, capacity=None, mtbf=None, afr=None, rebuild=None,
    read_errors=None, silent=None, checked=true))]
#[expect(clippy::too_many_arguments, reason = "named arguments in Python")]
pub(crate) fn forecast(
    py: Python<'_>,
    code: &Bound<'_, PyAny>,
    disks: Option<u32>,
    grouped: bool,
    capacity: Option<Quantity>,
    mtbf: Option<Quantity>,
    afr: Option<Quantity>,
    rebuild: Option<Quantity>,
    read_errors: Option<Quantity>,
    silent: Option<Quantity>,
    checked: bool,
) -> PyResult<Forecast> {
    let scheme = scheme(&code.str()?.to_string())?;
    let scheme = match disks {
        None => scheme,
        Some(disks) if grouped => scheme.grouped_on(disks).map_err(refused)?,
        Some(disks) => scheme.spread_over(disks).map_err(refused)?,
    };
    if mtbf.is_some() && afr.is_some() {
        return Err(Error::new_err("either mtbf or afr"));
    }
    let or = |given: Option<Quantity>,
              parse: fn(&str) -> Result<Rational, quantity::QuantityError>,
              usual| { given.map_or(Ok(usual), |text| parse(&text.0).map_err(refused)) };
    let usual = Given::default();
    let given = Given {
        capacity: or(capacity, quantity::bytes, usual.capacity)?,
        failure_hours: or(mtbf, quantity::hours, usual.failure_hours)?,
        rebuild_hours: or(rebuild, quantity::hours, usual.rebuild_hours)?,
        read_errors: or(read_errors, quantity::per_bit, usual.read_errors)?,
        silent: or(silent, quantity::share, usual.silent)?,
    };
    let given = match afr {
        None => given,
        Some(text) => {
            given.with_annual_failure_rate(&quantity::share(&text.0).map_err(refused)?).map_err(refused)?
        }
    };
    let parameters: Parameters = given.checked().map_err(refused)?;
    let model = if checked { Model::Checked } else { Model::Unchecked };
    let solved = py
        .detach(|| gabion_forecast::forecast(scheme, model, &parameters, Reading::Meant))
        .map_err(refused)?;
    let hours = solved.promise.mean_hours();
    Ok(Forecast {
        code: scheme.to_string(),
        disks: scheme.disks() * scheme.groups(),
        overhead: float(&scheme.overhead()),
        mean_hours: float(hours),
        mean_hours_text: shown(hours, DIGITS),
        loss_per_year: float(&solved.promise.per_year()),
        nines: solved.promise.nines(),
    })
}

/// A scheme from its text or from the identity of a code.
fn scheme(text: &str) -> PyResult<Scheme> {
    match Scheme::parse(text) {
        Ok(scheme) => Ok(scheme),
        Err(error) => match text.parse::<gabion_engine::Code>() {
            Ok(code) => {
                let number = |blocks: usize| u32::try_from(blocks).map_err(refused);
                Scheme::new(number(code.k())?, number(code.m())?).map_err(refused)
            }
            Err(_) => Err(refused(error)),
        },
    }
}
