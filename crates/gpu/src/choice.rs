//! Which of the two kernels serves a plan.

use crate::shape::Shape;
use crate::tuning::check_size;

/// What the user wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The generic kernel until a plan has done enough work that compiling its own pays.
    #[default]
    Automatic,
    /// The plan's own kernel wherever it is not too large to be unrolled.
    Specialised,
    /// The generic kernel.
    Generic,
}

/// What a plan gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Its matrix unrolled into code.
    Specialised,
    /// Its matrix as data.
    Generic,
}

impl Choice {
    /// What follows a back end's name.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Choice::Automatic => "",
            Choice::Specialised => "-specialised",
            Choice::Generic => "-generic",
        }
    }

    /// The form in which a plan of this shape begins.
    pub fn form(self, shape: &Shape) -> Form {
        match self {
            Choice::Specialised if check_size(shape).is_ok() => Form::Specialised,
            _ => Form::Generic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::Code;

    #[test]
    fn plans_too_large_to_be_unrolled_are_generic() {
        let form = |code: &str| {
            Choice::Specialised.form(&Shape::of(&code.parse::<Code>().unwrap().encode_plan().unwrap()))
        };
        assert_eq!(form("64+16"), Form::Specialised);
        assert_eq!(form("30+33"), Form::Specialised);
        assert_eq!(form("200+56"), Form::Generic);
        assert_eq!(form("20+8:w64"), Form::Generic);
    }
}
