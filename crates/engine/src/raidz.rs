//! The seven reconstructions of RAID-Z (thesis 6.2.2): the parities that restore one, two or three lost data blocks.
//! Encoding needs no code here: kernels recognise the rows of a `raidz` encode plan and run them by Horner's scheme.

use crate::code::{Code, Family};
use crate::error::Error;
use crate::plan::{Kind, Plan};

/// A reconstruction, named by the parities it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reconstruction {
    /// One data block from P.
    P,
    /// One data block from Q.
    Q,
    /// One data block from R.
    R,
    /// Two data blocks from P and Q.
    PQ,
    /// Two data blocks from P and R.
    PR,
    /// Two data blocks from Q and R.
    QR,
    /// Three data blocks from all three.
    PQR,
}

impl Reconstruction {
    /// All seven.
    pub const ALL: [Reconstruction; 7] = [
        Reconstruction::P,
        Reconstruction::Q,
        Reconstruction::R,
        Reconstruction::PQ,
        Reconstruction::PR,
        Reconstruction::QR,
        Reconstruction::PQR,
    ];

    /// Its name: the parities, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Reconstruction::P => "p",
            Reconstruction::Q => "q",
            Reconstruction::R => "r",
            Reconstruction::PQ => "pq",
            Reconstruction::PR => "pr",
            Reconstruction::QR => "qr",
            Reconstruction::PQR => "pqr",
        }
    }

    /// The parities it uses: 0 for P, 1 for Q, 2 for R.
    pub const fn parities(self) -> &'static [usize] {
        match self {
            Reconstruction::P => &[0],
            Reconstruction::Q => &[1],
            Reconstruction::R => &[2],
            Reconstruction::PQ => &[0, 1],
            Reconstruction::PR => &[0, 2],
            Reconstruction::QR => &[1, 2],
            Reconstruction::PQR => &[0, 1, 2],
        }
    }

    /// The plan that restores the `lost` data columns of `code` from all other data and exactly these parities.
    ///
    /// # Errors
    /// [`Error::SizeMismatch`] if the numbers of lost columns and parities differ, [`Error::NoSuchColumn`] if the code
    /// lacks a parity or column, [`Error::WrongKindOfColumn`] if a lost column is not a data column,
    /// [`Error::ColumnTwice`].
    pub fn plan(self, code: &Code, lost: &[usize]) -> Result<Plan, Error> {
        let parities = self.parities();
        if code.family() != Family::RaidZ {
            return Err(Error::NotRaidZ { code: code.to_string() });
        }
        if lost.len() != parities.len() {
            return Err(Error::SizeMismatch { left: lost.len(), right: parities.len() });
        }
        code.check_columns(lost, Some(Kind::Data))?;
        let data = (0..code.k()).filter(|column| !lost.contains(column));
        let sources: Vec<usize> = data.chain(parities.iter().map(|parity| code.k() + parity)).collect();
        code.repair_plan(lost, &sources)
    }
}
