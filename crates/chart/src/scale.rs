//! Axes: positions of values, and ticks at round numbers.

use crate::Axis;
use std::ops::Range;

/// A range of positions on an axis and the ticks in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scale {
    pub(crate) range: Range<f64>,
    pub(crate) ticks: Vec<f64>,
}

impl Scale {
    /// Position of a value as a share of the axis; values out of the range lie at its end.
    pub(crate) fn share(&self, value: f64) -> f64 {
        ((value - self.range.start) / (self.range.end - self.range.start)).clamp(0.0, 1.0)
    }

    /// From 0 up to `most`.
    pub(crate) fn from_zero(most: f64) -> Scale {
        let step = nice_step(most, 8.0);
        let ticks = (0..=(most * 1.05 / step) as usize).map(|index| index as f64 * step).collect();
        Scale { range: 0.0..most * 1.06, ticks }
    }

    /// From the power of ten below the least value to the one above the highest.
    pub(crate) fn decades(values: impl Iterator<Item = f64>) -> Scale {
        let powers = values.filter(|value| value.is_finite() && *value > 0.0).map(power);
        let (least, most) = powers
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), it| (least.min(it), most.max(it)));
        if least > most { Scale::of_powers(0.0, 1.0) } else { Scale::of_powers(least, most) }
    }

    /// Whole powers around the range between two.
    fn of_powers(least: f64, most: f64) -> Scale {
        let (least, most) = (least.floor(), most.ceil().max(least.floor() + 1.0));
        let step = nice_step(most - least, 12.0).max(1.0).round();
        Scale { range: least..most, ticks: multiples(step, least, most) }
    }
}

impl Axis {
    pub(crate) fn label(&self) -> &str {
        match self {
            Axis::Numbers(label) | Axis::Bytes(label) | Axis::Decades(label) => label,
        }
    }

    /// Position of a value, in the unit of [`Scale::range`].
    pub(crate) fn place(&self, value: f64) -> f64 {
        match self {
            Axis::Numbers(_) => value,
            Axis::Bytes(_) => value.max(1.0).log2(),
            Axis::Decades(_) => power(value),
        }
    }

    /// Text at the tick of a position.
    pub(crate) fn tick(&self, place: f64) -> String {
        match self {
            Axis::Numbers(_) => plain(place),
            Axis::Bytes(_) => bytes(place.exp2().round() as u64),
            Axis::Decades(_) => power_of_ten(place),
        }
    }

    /// Range and ticks for points at these positions, with a margin at both ends.
    pub(crate) fn scale(&self, mut places: Vec<f64>) -> Scale {
        places.retain(|place| place.is_finite());
        places.sort_by(f64::total_cmp);
        places.dedup();
        let (first, last) = (places.first().copied().unwrap_or(0.0), places.last().copied().unwrap_or(1.0));
        let margin = ((last - first) * 0.04).max(0.1);
        let ticks = match self {
            Axis::Bytes(_) => places,
            Axis::Decades(_) => return Scale::of_powers(first, last),
            Axis::Numbers(_) => multiples(nice_step(last - first, 16.0), first, last),
        };
        Scale { range: first - margin..last + margin, ticks }
    }
}

fn multiples(step: f64, least: f64, most: f64) -> Vec<f64> {
    let from = (least / step).ceil() as i64;
    (from..=(most / step).floor() as i64).map(|index| index as f64 * step).collect()
}

/// 1, 2, 4 or 5 times a power of ten, so that at most `parts` fit into `length`.
fn nice_step(length: f64, parts: f64) -> f64 {
    let least = (length / parts).max(1e-9);
    let decade = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 10.0].map(|factor| factor * decade);
    steps.into_iter().find(|&step| step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * decade)
}

/// The logarithm to base 10; a value that is not above 0 lies below every other.
pub(crate) fn power(value: f64) -> f64 {
    value.max(f64::MIN_POSITIVE).log10()
}

/// A power of ten, written out where that is short.
pub(crate) fn power_of_ten(power: f64) -> String {
    match power.round() as i64 {
        power @ -2..=4 => format!("{}", 10_f64.powi(power as i32)),
        power => format!("1e{power}"),
    }
}

/// A number with at most six decimals.
pub(crate) fn plain(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// A number of bytes in the largest unit that needs no fraction.
fn bytes(count: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fits = |&(_, bits): &(&str, u32)| count > 0 && count.trailing_zeros() >= bits;
    match units.into_iter().find(fits) {
        Some((unit, bits)) => format!("{}{unit}", count >> bits),
        None => format!("{count}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Scale, bytes, nice_step, power_of_ten};
    use crate::Axis;

    #[test]
    fn steps_are_round_numbers() {
        assert_eq!(nice_step(60.0, 16.0), 4.0);
        assert_eq!(nice_step(100.0, 8.0), 20.0);
        assert_eq!(nice_step(0.7, 8.0), 0.1);
    }

    #[test]
    fn decades_have_ticks_at_powers_of_ten() {
        let Scale { range, ticks } = Scale::decades([20.0, 4e33, 0.0, f64::NAN].into_iter());
        assert_eq!((range, ticks.first(), ticks.last()), (1.0..34.0, Some(&4.0), Some(&32.0)));
        assert_eq!([-3.0, -1.0, 3.0, 7.0].map(power_of_ten), ["1e-3", "0.1", "1000", "1e7"]);
        assert_eq!(Scale::decades([].into_iter()).range, 0.0..1.0);
    }

    #[test]
    fn bytes_have_the_largest_unit_without_a_fraction() {
        let counts = [0, 100, 4096, 1536, 10 << 20, 3 << 30];
        assert_eq!(counts.map(bytes), ["0B", "100B", "4KiB", "1536B", "10MiB", "3GiB"]);
    }

    /// Values that cannot be drawn do not move the others, and none leaves the axis.
    #[test]
    fn positions_stay_on_the_axis() {
        let scale = Axis::Numbers("x".into()).scale(vec![f64::NAN, 2.0, 10.0, f64::INFINITY]);
        assert!((1.6..1.7).contains(&scale.range.start) && (10.3..10.4).contains(&scale.range.end));
        assert_eq!((scale.share(-1e300), scale.share(1e300)), (0.0, 1.0));
    }
}
