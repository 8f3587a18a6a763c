//! Codes: field, generator family, numbers of blocks, and layout. Two codes with the same identity produce the same
//! bytes, on every back end and in every version.
//!
//! An identity is written `FAMILY:K+M:wW` for the words layout and `FAMILY:K+M:wW:packets=BYTES` for
//! the packets layout:
//!
//! ```
//! use gabion_engine::Code;
//! let code: Code = "cauchy-good:10+4:w4:packets=2048".parse()?;
//! assert_eq!((code.k(), code.m(), code.field().w()), (10, 4, 4));
//! assert_eq!(code.to_string(), "cauchy-good:10+4:w4:packets=2048");
//! // Omitted parts take their default.
//! assert_eq!("10+4".parse::<Code>()?.to_string(), "subspace:10+4:w8");
//! # Ok::<(), gabion_engine::Error>(())
//! ```

use crate::error::Error;
use crate::field::Field;
use crate::layout::Layout;
use crate::matrix::Matrix;
use crate::matrix::cauchy::CauchyForm;
use crate::matrix::coefficients::Coefficients;
use crate::matrix::generators;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Limit of the blocks of one stripe, for all fields.
pub const MAX_BLOCKS: usize = 1 << 16;

/// Generator family of the redundancy matrix of a code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Family {
    /// Cauchy matrix on a subspace and its cosets, scaled so that additive FFTs apply it.
    #[default]
    Subspace,
    /// Systematic Vandermonde over the points 0, 1, 2, …
    RsVandermonde,
    /// Powers of two as in ISA-L's `gf_gen_rs_matrix`, for shapes where it is MDS.
    RsIsal,
    /// Cauchy matrix with Jerasure's numbering.
    Cauchy,
    /// Cauchy matrix with ISA-L's numbering.
    CauchyIsal,
    /// Cauchy matrix scaled to few ones in its bit matrix.
    CauchyGood,
    /// P, Q and R of RAID-Z.
    RaidZ,
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 7] = [
        Family::Subspace,
        Family::RsVandermonde,
        Family::RsIsal,
        Family::Cauchy,
        Family::CauchyIsal,
        Family::CauchyGood,
        Family::RaidZ,
    ];

    /// Its name in a code identity.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Subspace => "subspace",
            Family::RsVandermonde => "rs-vandermonde",
            Family::RsIsal => "rs-isal",
            Family::Cauchy => "cauchy",
            Family::CauchyIsal => "cauchy-isal",
            Family::CauchyGood => "cauchy-good",
            Family::RaidZ => "raidz",
        }
    }

    /// The field of families that are defined over one field only.
    const fn only_field(self) -> Option<Field> {
        match self {
            Family::RsIsal | Family::CauchyIsal | Family::RaidZ => Some(Field::GF8),
            _ => None,
        }
    }

    /// The largest m for k data blocks with which any m losses can be repaired.
    fn max_redundancy(self, k: usize) -> usize {
        match self {
            Family::RaidZ => 3,
            Family::RsIsal => generators::isal_vandermonde_limit(k),
            _ => MAX_BLOCKS,
        }
    }

    /// Its coefficients, and their points for Cauchy families.
    fn generate(
        self,
        field: Field,
        k: usize,
        m: usize,
        layout: Layout,
    ) -> Result<(Coefficients, Option<CauchyForm>), Error> {
        let dense = |matrix: Result<Matrix, Error>| Ok((Coefficients::Held(matrix?), None));
        let points =
            |form: CauchyForm| Ok((Coefficients::of_points(field, layout, form.clone())?, Some(form)));
        match self {
            Family::Subspace => points(generators::subspace_points(field, k, m)),
            Family::RsVandermonde => points(generators::vandermonde_points(field, k, m)),
            Family::RsIsal => dense(generators::isal_vandermonde(field, k, m)),
            Family::Cauchy => points(generators::cauchy_points(k, m)),
            Family::CauchyIsal => points(generators::cauchy_isal_points(k, m)),
            Family::CauchyGood => dense(generators::cauchy_good(field, k, m)),
            Family::RaidZ => dense(generators::raidz(field, k, m)),
        }
    }
}

/// A systematic erasure code: k data blocks, m redundancy blocks, any k of them suffice.
///
/// A code can be the first columns of a wider one ([`first_columns`](Code::first_columns)): the identity then names the
/// wider one as well, `subspace:8+2/4:w8`, and is not accepted as text.
#[derive(Clone)]
pub struct Code {
    family: Family,
    field: Field,
    k: usize,
    m: usize,
    /// Redundancy columns of the code that the matrix is taken from; m unless the code was narrowed.
    room: usize,
    layout: Layout,
    /// Derived from the fields above; shared between clones.
    redundancy: Arc<Coefficients>,
    points: Option<Arc<CauchyForm>>,
}

impl Code {
    /// The code of this identity.
    ///
    /// # Errors
    /// A shape, field or layout that the family does not support, with the limit.
    pub fn new(family: Family, field: Field, k: usize, m: usize, layout: Layout) -> Result<Code, Error> {
        let name = family.name();
        if let Some(only) = family.only_field().filter(|&only| only != field) {
            return Err(Error::WrongField { family: name, defined: only.w(), w: field.w() });
        }
        layout.granule(field)?;
        let limit = field.order().min(MAX_BLOCKS);
        if k == 0 || k.checked_add(m).is_none_or(|blocks| blocks > limit) {
            return Err(Error::ShapeOutOfRange { family: name, w: field.w(), k, m, limit });
        }
        let limit = family.max_redundancy(k);
        if m > limit {
            return Err(Error::TooMuchRedundancy { family: name, k, m, limit });
        }
        // Checked first: generating a matrix that no kernel accepts may take long.
        let limit = layout.max_coefficients(field)?;
        if k * m > limit && !layout.runs_by_points(field) {
            return Err(Error::MatrixTooLarge { rows: m, columns: k, limit });
        }
        let (redundancy, points) = family.generate(field, k, m, layout)?;
        let (redundancy, points) = (Arc::new(redundancy), points.map(Arc::new));
        Ok(Code { family, field, k, m, room: m, layout, redundancy, points })
    }

    /// The code with the first `m` redundancy columns of this one. Its blocks are those of this code, so redundancy
    /// columns can be added up to [`room`](Code::room) and removed without changing the others.
    ///
    /// # Errors
    /// [`Error::NoSuchColumn`] if this code has fewer.
    pub fn first_columns(&self, m: usize) -> Result<Code, Error> {
        if m > self.m {
            return Err(Error::NoSuchColumn { column: self.k + m - 1, last: self.blocks() - 1 });
        }
        if m == self.m {
            return Ok(self.clone());
        }
        let (rows, columns): (Vec<usize>, Vec<usize>) = ((0..m).collect(), (0..self.k).collect());
        let points = self.points().map(|form| form.select(&rows, &columns));
        let redundancy = match &points {
            Some(form) => Coefficients::of_points(self.field, self.layout, form.clone())?,
            None => Coefficients::Held(self.redundancy()?.select(&rows, &columns)?),
        };
        Ok(Code { m, redundancy: Arc::new(redundancy), points: points.map(Arc::new), ..self.clone() })
    }

    /// Number of redundancy columns of the code that this one has the [first columns](Code::first_columns) of; m for
    /// all other codes.
    pub fn room(&self) -> usize {
        self.room
    }

    /// The code of which this one has the [first columns](Code::first_columns).
    ///
    /// # Errors
    /// None that [`new`](Code::new) did not give before.
    pub fn widest(&self) -> Result<Code, Error> {
        if self.room == self.m {
            return Ok(self.clone());
        }
        Code::new(self.family, self.field, self.k, self.room, self.layout)
    }

    /// True if all but the numbers of redundancy columns is equal, and the redundancy columns that both codes have
    /// consist of the same bytes.
    pub fn shares_columns(&self, other: &Code) -> bool {
        let form = |code: &Code| (code.family, code.field, code.k, code.layout);
        if form(self) != form(other) {
            return false;
        }
        let common = self.m.min(other.m);
        match (self.points(), other.points()) {
            (Some(one), Some(other)) => {
                one.rows[..common] == other.rows[..common] && one.columns == other.columns
            }
            _ => match (self.redundancy(), other.redundancy()) {
                (Ok(one), Ok(other)) => (0..common).all(|row| one.row(row) == other.row(row)),
                _ => false,
            },
        }
    }

    /// True if both have the same family, field, layout, k and m, and differ at most in the wider code that their
    /// columns are taken from.
    pub fn is_like(&self, other: &Code) -> bool {
        let form = |code: &Code| (code.family, code.field, code.k, code.m, code.layout);
        form(self) == form(other)
    }

    /// The identity of the code without the wider one, as users write it: `subspace:8+2:w8`.
    pub fn in_words(&self) -> String {
        Identity { code: self, m: self.m, room: None }.to_string()
    }

    /// The identity of the [widest](Code::widest) code: `subspace:8+4:w8`.
    pub fn wide_identity(&self) -> String {
        Identity { code: self, m: self.room, room: None }.to_string()
    }

    /// The generator family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The field of its symbols.
    pub fn field(&self) -> Field {
        self.field
    }

    /// Data blocks of a stripe.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Redundancy blocks of a stripe.
    pub fn m(&self) -> usize {
        self.m
    }

    /// Number of blocks of a stripe. Columns 0..k are data, k..k+m redundancy.
    pub fn blocks(&self) -> usize {
        self.k + self.m
    }

    /// The layout of symbols in a block.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The unit in bytes that a block must be a multiple of.
    pub fn granule(&self) -> usize {
        let granule = self.layout.granule(self.field);
        granule.expect("Code::new accepted the layout of this field")
    }

    /// The m x k matrix that maps data to redundancy. Most codes store it; for codes of more than 2^18 coefficients
    /// with [points](Code::points) over GF(2^16), words layout, it is computed on the first call.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`]: a code that is stored by its points may have any number of coefficients.
    pub fn redundancy(&self) -> Result<&Matrix, Error> {
        self.redundancy.matrix()
    }

    /// The matrix, if it is stored.
    pub(crate) fn held_redundancy(&self) -> Option<&Matrix> {
        match &*self.redundancy {
            Coefficients::Held(matrix) => Some(matrix),
            Coefficients::Points(_) => None,
        }
    }

    /// The points of the redundancy matrix, for Cauchy families.
    pub fn points(&self) -> Option<&CauchyForm> {
        self.points.as_deref()
    }
}

/// Codes are equal if their identities are equal; the identity determines the matrix.
impl PartialEq for Code {
    fn eq(&self, other: &Code) -> bool {
        self.is_like(other) && self.room == other.room
    }
}

impl Eq for Code {}

/// Text of a code with m redundancy columns, and with the number of columns of a wider one.
struct Identity<'a> {
    code: &'a Code,
    m: usize,
    room: Option<usize>,
}

impl fmt::Display for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Code { family, field, k, layout, .. }, m) = (self.code, self.m);
        write!(f, "{}:{k}+{m}", family.name())?;
        if let Some(room) = self.room {
            write!(f, "/{room}")?;
        }
        write!(f, ":w{}", field.w())?;
        match layout {
            Layout::Words => Ok(()),
            Layout::Packets { bytes } => write!(f, ":packets={bytes}"),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let room = (self.room != self.m).then_some(self.room);
        fmt::Display::fmt(&Identity { code: self, m: self.m, room }, f)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({self})")
    }
}

impl FromStr for Code {
    type Err = Error;

    fn from_str(text: &str) -> Result<Code, Error> {
        let bad = |reason| Error::BadCode { text: text.to_owned(), reason };
        let number = |digits: &str, reason| {
            // Signs are refused, although `parse` would accept them.
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse::<usize>().ok()).flatten().ok_or(bad(reason))
        };
        let mut parts = text.split(':').peekable();
        let family = match parts.peek().and_then(|name| family_named(name)) {
            Some(family) => {
                parts.next();
                family
            }
            None => Family::default(),
        };
        let shape = parts.next().ok_or(bad("the shape K+M is missing"))?;
        let (k, m) = shape.split_once('+').ok_or(bad("neither a family nor a shape K+M"))?;
        let k = number(k, "K is no number of data blocks")?;
        let m = number(m, "M is no number of redundancy blocks")?;
        let (mut field, mut layout) = (None, None);
        for part in parts {
            if let Some(bytes) = part.strip_prefix("packets=") {
                let bytes = number(bytes, "packets= takes a number of bytes")?;
                if layout.replace(Layout::Packets { bytes }).is_some() {
                    return Err(bad("the layout is given twice"));
                }
            } else if let Some(w) = part.strip_prefix('w') {
                let w = number(w, "w takes a number of bits")?;
                let w = u32::try_from(w).map_err(|_| bad("w takes a number of bits"))?;
                if field.replace(Field::new(w)?).is_some() {
                    return Err(bad("the field is given twice"));
                }
            } else {
                return Err(bad("after the shape come :wBITS and :packets=BYTES only"));
            }
        }
        let (field, layout) = (field.unwrap_or(Field::GF8), layout.unwrap_or(Layout::Words));
        Code::new(family, field, k, m, layout)
    }
}

fn family_named(name: &str) -> Option<Family> {
    Family::ALL.into_iter().find(|family| family.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn identities_round_trip() {
        for text in [
            "subspace:10+4:w8",
            "subspace:40+9:w9:packets=8",
            "subspace:1+0:w64",
            "subspace:5+11:w4",
            "rs-vandermonde:10+4:w8",
            "cauchy:1+0:w64",
            "cauchy-isal:252+4:w8",
            "cauchy-good:10+4:w4:packets=2048",
            "raidz:8+3:w8",
            "rs-isal:21+4:w8",
            "cauchy:40+4:w7:packets=8",
        ] {
            assert_eq!(text.parse::<Code>().unwrap().to_string(), text);
        }
        assert_eq!("raidz:8+2".parse::<Code>().unwrap().to_string(), "raidz:8+2:w8");
    }

    #[test]
    fn invalid_codes_are_refused_with_numbers() {
        let error = |text: &str| text.parse::<Code>().unwrap_err();
        let shape = |family, w, k, m, limit| Error::ShapeOutOfRange { family, w, k, m, limit };
        assert_eq!(error("0+4"), shape("subspace", 8, 0, 4, 256));
        assert_eq!(error("253+4"), shape("subspace", 8, 253, 4, 256));
        assert_eq!(error("rs-vandermonde:253+4"), shape("rs-vandermonde", 8, 253, 4, 256));
        assert_eq!(error("subspace:13+4:w4"), shape("subspace", 4, 13, 4, 16));
        assert_eq!(error("subspace:4+13:w4"), shape("subspace", 4, 4, 13, 16));
        assert_eq!(error("subspace:65536+1:w64"), shape("subspace", 64, 65536, 1, 65536));
        assert_eq!(error("cauchy:13+4:w4"), shape("cauchy", 4, 13, 4, 16));
        assert_eq!(error("cauchy:65536+1:w32"), shape("cauchy", 32, 65536, 1, 65536));
        assert_eq!(error("raidz:8+4"), Error::TooMuchRedundancy { family: "raidz", k: 8, m: 4, limit: 3 });
        assert_eq!(
            error("rs-isal:30+4"),
            Error::TooMuchRedundancy { family: "rs-isal", k: 30, m: 4, limit: 3 }
        );
        assert_eq!(error("raidz:8+2:w16"), Error::WrongField { family: "raidz", defined: 8, w: 16 });
        assert_eq!(error("10+4:w9"), Error::NoWordsLayout { w: 9 });
        assert_eq!(error("10+4:w17"), Error::UnknownField { w: 17 });
        assert_eq!(
            error("10+4:packets=0"),
            Error::PacketOutOfRange { bytes: 0, limit: crate::layout::MAX_PACKET }
        );
        // Only codes with points over GF(2^16), words layout, run without a matrix.
        for text in [
            "subspace:30000+30000:w16:packets=8",
            "subspace:30000+30000:w32",
            "cauchy:30000+30000:w64",
            "rs-vandermonde:30000+30000:w64",
        ] {
            assert!(
                matches!(error(text), Error::MatrixTooLarge { rows: 30_000, columns: 30_000, .. }),
                "{text}"
            );
        }
        // A coefficient over GF(2^64) is 64 maps of bytes, or 4096 bits.
        let large = |k, m, limit| Error::MatrixTooLarge { rows: m, columns: k, limit };
        assert_eq!(error("1025+1024:w64"), large(1025, 1024, 1 << 20));
        assert_eq!(error("4096+1025:w32"), large(4096, 1025, 1 << 22));
        assert_eq!(error("cauchy:129+128:w64:packets=8"), large(129, 128, 1 << 14));
        assert_eq!(error("65000+16:w16:packets=1"), large(65_000, 16, 1 << 18));
        for text in [
            "",
            ":",
            "10",
            "10+",
            "+4",
            "-1+4",
            "10+4+2",
            "reed:10+4",
            "10+4:",
            "10+4:w",
            "10+4:w8:w8",
            "10+4:x",
            "10 + 4",
            "10+4:packets=8:packets=8",
            "+1+2",
            "99999999999999999999+1",
        ] {
            assert!(matches!(error(text), Error::BadCode { .. }), "{text}: {:?}", error(text));
        }
    }

    /// Every shape of the field is a code; its matrix is available unless it is too large.
    #[test]
    fn codes_of_any_size_have_points() {
        for (k, m) in [(60_000, 5536), (32_768, 32_768), (65_535, 1), (1, 65_535), (65_536, 0)] {
            for family in ["subspace", "cauchy", "rs-vandermonde"] {
                let code: Code = format!("{family}:{k}+{m}:w16").parse().unwrap();
                let points = code.points().unwrap();
                assert_eq!((points.rows.len(), points.columns.len()), (m, k));
                match code.redundancy() {
                    Ok(matrix) => assert_eq!((matrix.rows(), matrix.columns()), (m, k)),
                    Err(error) => {
                        let limit = crate::matrix::MAX_COEFFICIENTS;
                        assert_eq!(error, Error::MatrixTooLarge { rows: m, columns: k, limit });
                        assert!(k * m > limit);
                    }
                }
            }
        }
        let made: Code = "1000+300:w16".parse().unwrap();
        assert!(made.held_redundancy().is_none());
        assert_eq!(made.redundancy().unwrap(), &made.points().unwrap().matrix(Field::GF16).unwrap());
    }

    /// Shapes whose room is a power of two, others, and shapes whose data is on the smaller side.
    #[test]
    fn the_first_columns_of_a_code_are_its_columns() {
        let engine = crate::Engine::new(1).unwrap();
        for text in [
            "8+4",
            "1+4",
            "2+4",
            "3+4",
            "12+8",
            "252+4",
            "5+4:w4",
            "40+4:w16",
            "raidz:8+3",
            "cauchy-good:7+4",
        ] {
            let wide: Code = text.parse().unwrap();
            let len = 64 * wide.granule();
            let data: Vec<Vec<u8>> = (0..wide.k())
                .map(|j| (0..len).map(|at| (at * 7 + j * 31 + at * at) as u8).collect())
                .collect();
            let data: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
            let encode = |code: &Code| {
                let mut made = vec![vec![0; len]; code.m()];
                let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(|block| &mut block[..]).collect();
                engine.compile(&code.encode_plan().unwrap()).unwrap().run(&data, &mut outputs).unwrap();
                made
            };
            let all = encode(&wide);
            for m in 1..=wide.m() {
                let narrow = wide.first_columns(m).unwrap();
                assert_eq!((narrow.m(), narrow.room(), narrow.blocks()), (m, wide.m(), wide.k() + m));
                assert_eq!(narrow.widest().unwrap(), wide);
                assert_eq!(narrow == wide, m == wide.m());
                assert!(narrow.shares_columns(&wide) && wide.shares_columns(&narrow), "{narrow}");
                let made = encode(&narrow);
                assert_eq!(made, all[..m], "{narrow}");
                // The last m data columns from the others.
                let blocks: Vec<&[u8]> =
                    data.iter().copied().chain(made.iter().map(|block| &block[..])).collect();
                let lost: Vec<usize> = (wide.k().saturating_sub(m)..wide.k()).collect();
                let there = |column: usize| (!lost.contains(&column)).then_some(blocks[column]);
                let stripe: Vec<Option<&[u8]>> = (0..blocks.len()).map(there).collect();
                let mut restored = vec![vec![0; len]; lost.len()];
                let mut outputs: Vec<&mut [u8]> = restored.iter_mut().map(|block| &mut block[..]).collect();
                engine.repairer(&narrow).repair(&stripe, &lost, &mut outputs).unwrap();
                assert!(lost.iter().zip(&restored).all(|(&column, made)| made == data[column]), "{narrow}");
            }
            assert!(wide.first_columns(wide.m() + 1).is_err());
        }
    }

    #[test]
    fn codes_share_columns_as_their_families_do() {
        let shares = |one: &str, other: &str| {
            let (one, other): (Code, Code) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(one.shares_columns(&other), other.shares_columns(&one));
            one.shares_columns(&other)
        };
        for family in ["rs-vandermonde", "cauchy-isal", "rs-isal", "raidz"] {
            assert!(shares(&format!("{family}:8+2"), &format!("{family}:8+3")), "{family}");
            assert!(shares(&format!("{family}:8+3"), &format!("{family}:8+1")), "{family}");
        }
        for family in ["cauchy", "cauchy-good"] {
            assert!(!shares(&format!("{family}:8+2"), &format!("{family}:8+3")), "{family}");
        }
        assert!(shares("8+3", "8+4") && !shares("8+2", "8+3") && !shares("8+1", "8+2"));
        assert!(!shares("8+3", "9+4") && !shares("8+3", "8+4:w16") && !shares("8+3", "raidz:8+3"));
        let narrow = |m| "8+4".parse::<Code>().unwrap().first_columns(m).unwrap();
        assert!(narrow(1).shares_columns(&narrow(3)) && narrow(2).is_like(&"8+2".parse().unwrap()));
        assert!(!narrow(2).shares_columns(&"8+2".parse().unwrap()));
        assert_eq!(
            (narrow(2).to_string(), narrow(2).in_words()),
            ("subspace:8+2/4:w8".into(), "subspace:8+2:w8".into())
        );
        assert!("8+2/4".parse::<Code>().is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "[a-z:+=0-9-]{0,24}") {
            if let Ok(code) = text.parse::<Code>() {
                prop_assert_eq!(code.to_string().parse::<Code>().unwrap(), code);
            }
        }
    }
}
