//! Encoding of numbers and strings in a header.

use super::header::HeaderError;
use crate::world::Timestamp;

/// Appends fields.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn time(&mut self, value: Timestamp) -> &mut Writer {
        self.bytes(&value.nanoseconds().to_le_bytes())
    }
}

/// Reads fields from the front.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], HeaderError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(HeaderError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], HeaderError> {
        self.bytes(N)?.try_into().map_err(|_| HeaderError::Short)
    }

    pub(super) fn id(&mut self) -> Result<[u8; 16], HeaderError> {
        self.array()
    }

    pub(super) fn u16(&mut self) -> Result<u16, HeaderError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, HeaderError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, HeaderError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, HeaderError> {
        Ok(Timestamp::from_nanoseconds(i64::from_le_bytes(self.array()?)))
    }
}
