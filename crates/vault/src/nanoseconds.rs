//! Timestamps in records that serde writes: nanoseconds since 1970, for `#[serde(with = "…::nanoseconds")]`.

use crate::world::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes a timestamp as a number.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    time.nanoseconds().serialize(to)
}

/// Reads a timestamp from a number.
///
/// # Errors
/// Those of the deserializer.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    i64::deserialize(from).map(Timestamp::from_nanoseconds)
}

/// The same for a timestamp that may be absent. A field needs `default` as well to be left out.
pub mod optional {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Timestamp};

    /// Writes a number or none.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        time.map(Timestamp::nanoseconds).serialize(to)
    }

    /// Reads a number or none.
    ///
    /// # Errors
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        Option::deserialize(from).map(|time| time.map(Timestamp::from_nanoseconds))
    }
}
