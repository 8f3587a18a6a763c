//! Times and paths in reports: RFC 3339, and text with the exact bytes where the text is not exact.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::world::{Timestamp, moment, moment_from};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// A time; in JSON as RFC 3339 in UTC, with nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = moment(self.0);
        let seconds = seconds.trim_end_matches(" UTC").replace(' ', "T");
        write!(f, "{seconds}.{:09}Z", self.0.parts().1)
    }
}

/// Error of a text that is no time of RFC 3339 in UTC.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no RFC 3339 time in UTC, for example 2026-11-19T20:14:10Z")]
pub struct NoTime(String);

impl std::str::FromStr for Time {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Time, NoTime> {
        let no = || NoTime(text.chars().take(64).collect());
        let rest = text.strip_suffix(['Z', 'z']).ok_or_else(no)?;
        let (seconds, fraction) = rest.split_once('.').map_or((rest, None), |(a, b)| (a, Some(b)));
        let shape = |at: usize, letter: u8| match at {
            4 | 7 => letter == b'-',
            10 => matches!(letter, b'T' | b't' | b' '),
            13 | 16 => letter == b':',
            _ => letter.is_ascii_digit(),
        };
        if seconds.len() != 19 || !seconds.bytes().enumerate().all(|(at, letter)| shape(at, letter)) {
            return Err(no());
        }
        let name = format!("{}-UTC", seconds.replace(['T', 't', ' ', ':'], "-"));
        let whole = moment_from(name.as_bytes()).ok_or_else(no)?;
        let nanos = match fraction {
            None => Duration::ZERO,
            Some(digits)
                if (1..=9).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit()) =>
            {
                Duration::from_nanos(format!("{digits:0<9}").parse().map_err(|_| no())?)
            }
            Some(_) => return Err(no()),
        };
        Ok(Time(whole + nanos))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// A path: its text, and its bytes where it is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PathName {
    /// Text of the path; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The bytes of the path in Base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
}

impl PathName {
    /// Of the bytes of a path.
    pub fn new(path: &[u8]) -> PathName {
        let path_bytes = std::str::from_utf8(path).is_err().then(|| STANDARD.encode(path));
        PathName { path: String::from_utf8_lossy(path).into_owned(), path_bytes }
    }

    /// Of a path of the system.
    pub fn system(path: &Path) -> PathName {
        PathName::new(path.as_os_str().as_bytes())
    }
}

/// Escaped, for people.
impl std::fmt::Display for PathName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.path_bytes.as_ref().and_then(|bytes| STANDARD.decode(bytes).ok());
        let bytes = bytes.as_deref().unwrap_or(self.path.as_bytes());
        std::fmt::Display::fmt(&DisplayPath::bytes(bytes), f)
    }
}

#[cfg(test)]
mod tests {
    use super::{PathName, Time};
    use gabion_vault::world::Timestamp;

    #[test]
    fn times_are_read_as_they_are_written() {
        for nanos in [0, 1, 999_999_999, 1_763_583_250_123_456_789, 951_782_400_000_000_000] {
            let time = Time(Timestamp::from_nanoseconds(nanos));
            assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
        }
        assert_eq!(
            Time(Timestamp::from_nanoseconds(1_500_000_000)).to_string(),
            "1970-01-01T00:00:01.500000000Z"
        );
        assert_eq!(
            "1970-01-01T00:00:01.5Z".parse::<Time>().unwrap(),
            Time(Timestamp::from_nanoseconds(1_500_000_000))
        );
        for wrong in [
            "",
            "Z",
            "1970-01-01T00:00:01",
            "1970-01-01T00:00:01.Z",
            "1970-13-01T00:00:01Z",
            "é9999-01-01T00:00:0Z",
        ] {
            assert!(wrong.parse::<Time>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_paths_that_are_not_utf8_have_bytes() {
        assert_eq!(
            PathName::new("fotos/ä".as_bytes()),
            PathName { path: "fotos/ä".to_owned(), path_bytes: None }
        );
        let name = PathName::new(b"a\xff");
        assert_eq!((name.path.as_str(), name.path_bytes.as_deref()), ("a\u{fffd}", Some("Yf8=")));
        assert_eq!(name.to_string(), "a\\xff", "people see the bytes");
    }
}
