//! Kernels that multiply symbols, by the three methods of the OpenCL paper, for the words layout.
//!
//! ```text
//! one work-item: 4, 16 or 64 bytes of one output
//!     sum = 0
//!     for every input:
//!         sum = sum + coefficient[output][input] * the same bytes of the input
//!     store, or add
//! ```
//!
//! 1. *peasant*: shift and add, all symbols of a word at once; no tables. A coefficient takes w steps.
//! 2. *log*: logarithms of both factors are added; 768 bytes of tables, copied to local memory.
//! 3. *full*: a table of all products, 64 KiB, with 256 bytes per coefficient.
//! 4. *unrolled*: (1) without loops, which an FPGA compiler turns into one pipeline.
//!
//! The matrix is data. Additions of bit rows are the default; these kernels are for devices on which they are faster,
//! and for comparison.

use super::text::{Text, line};
use super::{Counts, Dialect, Launch, Source};
use crate::error::GpuError;
use gabion_engine::{Field, Layout, Mode, Plan};

/// Multiplication method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Shift and add.
    Peasant,
    /// Tables of logarithms and powers.
    Log,
    /// A table of all products.
    Full,
    /// Shift and add without loops.
    Unrolled,
}

impl Method {
    /// All values.
    pub const ALL: [Method; 4] = [Method::Peasant, Method::Log, Method::Full, Method::Unrolled];

    /// Its name as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Peasant => "peasant",
            Method::Log => "log",
            Method::Full => "full",
            Method::Unrolled => "unrolled",
        }
    }

    /// The supported symbol widths, for messages.
    const fn can(self) -> &'static str {
        match self {
            Method::Peasant | Method::Unrolled => "words of 4, 8, 16 or 32 bits",
            Method::Log | Method::Full => "words of 8 bits",
        }
    }

    fn knows(self, w: u32) -> bool {
        match self {
            Method::Peasant | Method::Unrolled => matches!(w, 4 | 8 | 16 | 32),
            Method::Log | Method::Full => w == 8,
        }
    }
}

/// Words of 32 bits per load of a work-item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vector {
    /// `uint`.
    One,
    /// `uint4`.
    Four,
    /// `uint16`.
    Sixteen,
}

impl Vector {
    /// All values.
    pub const ALL: [Vector; 3] = [Vector::One, Vector::Four, Vector::Sixteen];

    /// Words.
    pub const fn words(self) -> usize {
        match self {
            Vector::One => 1,
            Vector::Four => 4,
            Vector::Sixteen => 16,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Vector::One => "uint",
            Vector::Four => "uint4",
            Vector::Sixteen => "uint16",
        }
    }

    /// The words of a vector variable.
    fn parts(self, of: &str) -> Vec<String> {
        match self {
            Vector::One => vec![of.to_owned()],
            _ => (0..self.words()).map(|word| format!("{of}.s{word:x}")).collect(),
        }
    }
}

/// One combination of method and vector width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variant {
    /// The method.
    pub method: Method,
    /// The vector width.
    pub vector: Vector,
}

impl Variant {
    /// Suffix of the back end's name.
    pub fn suffix(self) -> String {
        format!("-{}-{}", self.method.name(), self.vector.name())
    }
}

const THREADS: usize = 128;

/// Bytes of the tables that precede the matrix.
const LOG_TABLES: usize = 256 + 512;
const FULL_TABLE: usize = 1 << 16;

/// The text, and tables with the matrix as data.
///
/// # Errors
/// [`GpuError::Method`] for plans of other layouts or widths.
pub fn source(plan: &Plan, variant: Variant) -> Result<(Source, Option<Vec<u32>>), GpuError> {
    let (field, method) = (plan.field(), variant.method);
    if plan.layout() != Layout::Words || !method.knows(field.w()) {
        let (method, can) = (method.name(), method.can());
        let plan = format!("{:?} of {} bits", plan.layout(), field.w());
        return Err(GpuError::Method { method, can, plan });
    }
    let (inputs, outputs) = (plan.inputs().len(), plan.outputs().len());
    let bytes = 4 * variant.vector.words();
    let launch = Launch { threads: THREADS, passes: outputs, bytes_per_thread: bytes };
    let mut text = Text(Dialect::OpenCl.prelude());
    line!(text, "typedef {} vec;", variant.vector.name());
    let tables = match method {
        Method::Peasant | Method::Unrolled => 0,
        Method::Log => LOG_TABLES,
        Method::Full => FULL_TABLE,
    };
    functions(&mut text, field, variant);
    text.0 += &Dialect::OpenCl.head(launch, 1, ", __global const byte* data, u32 inputs, u32 outputs");
    line!(text, "const u64 at = ((u64)TILE * {THREADS}u + LOCAL_X) * {bytes}u;");
    line!(text, "__global const u32* const row = (__global const u32*)(data + {tables}) + PASS * inputs;");
    if method == Method::Log {
        line!(text, "__local byte tables[{LOG_TABLES}];");
        line!(text, "for (u32 i = LOCAL_X; i < {LOG_TABLES}u; i += {THREADS}u) tables[i] = data[i];");
        line!(text, "MEET;");
    }
    line!(text, "vec sum = (vec)(0u);");
    let product = |input: &str| match method {
        Method::Peasant | Method::Unrolled => format!("sum ^= product(x, row[{input}]);"),
        Method::Log => format!("sum ^= product(x, row[{input}], tables);"),
        Method::Full => format!("sum ^= product(x, data + (row[{input}] << 8));"),
    };
    if method == Method::Unrolled {
        for input in 0..inputs {
            line!(text, "{{ const vec x = *(__global const vec*)(in + {input}ul * in_stride + at);");
            line!(text, "{} }}", product(&format!("{input}")));
        }
    } else {
        line!(text, "for (u32 input = 0; input < inputs; input++) {{");
        line!(text, "const vec x = *(__global const vec*)(in + input * in_stride + at);");
        line!(text, "{}", product("input"));
        line!(text, "}}");
    }
    line!(text, "__global vec* const to = (__global vec*)(out + PASS * out_stride + at);");
    line!(text, "*to = {};", if plan.mode() == Mode::Add { "*to ^ sum" } else { "sum" });
    line!(text, "}}");
    let words = variant.vector.words();
    let counts = Counts { loaded: inputs * words, stored: words, ..Counts::default() };
    Ok((Source { text: text.0, launch, counts }, Some(data(plan, method))))
}

/// Writes the function `product` for a vector.
fn functions(text: &mut Text, field: Field, variant: Variant) {
    let w = field.w();
    let lanes = |of_lane: u64| (0..32 / w).fold(0u64, |word, lane| word | of_lane << (lane * w)) as u32;
    let (ones, low) = (lanes(1), lanes((1u64 << (w - 1)) - 1));
    let polynomial = field.polynomial();
    let double = format!("((a & {low:#x}u) << 1) ^ (((a >> {}) & {ones:#x}u) * {polynomial:#x}u)", w - 1);
    match variant.method {
        Method::Peasant => {
            line!(text, "static inline vec product(vec a, u32 c) {{");
            line!(text, "vec p = (vec)(0u);");
            line!(text, "for (u32 bit = 0; bit < {w}u; bit++) {{");
            line!(text, "p ^= a & (vec)(0u - (c >> bit & 1u));");
            line!(text, "a = {double};");
            line!(text, "}}");
            line!(text, "return p;");
            line!(text, "}}");
        }
        Method::Unrolled => {
            line!(text, "static inline vec product(vec a, u32 c) {{");
            line!(text, "vec p = a & (vec)(0u - (c & 1u));");
            for bit in 1..w {
                line!(text, "a = {double};");
                line!(text, "p ^= a & (vec)(0u - (c >> {bit} & 1u));");
            }
            line!(text, "return p;");
            line!(text, "}}");
        }
        Method::Log => {
            line!(text, "static inline u32 one(u32 x, u32 l, __local const byte* tables) {{");
            line!(text, "return x == 0u ? 0u : tables[256u + tables[x] + l];");
            line!(text, "}}");
            by_bytes(text, variant.vector, "u32 c, __local const byte* tables", |byte| {
                format!("one({byte}, l, tables)")
            });
        }
        Method::Full => {
            by_bytes(text, variant.vector, "__global const byte* products", |byte| {
                format!("products[{byte}]")
            });
        }
    }
}

/// Writes a product by lookup of single bytes.
fn by_bytes(text: &mut Text, vector: Vector, parameters: &str, one: impl Fn(&str) -> String) {
    line!(text, "static inline vec product(vec x, {parameters}) {{");
    if parameters.starts_with("u32 c") {
        line!(text, "if (c == 0u) return (vec)(0u);");
        line!(text, "const u32 l = tables[c];");
    }
    line!(text, "vec p;");
    for (from, to) in vector.parts("x").iter().zip(vector.parts("p")) {
        let bytes = (0..4).map(|byte| {
            let place = format!("({from} >> {} & 255u)", 8 * byte);
            format!("(u32){} << {}", one(&place), 8 * byte)
        });
        line!(text, "{to} = {};", bytes.collect::<Vec<_>>().join(" | "));
    }
    line!(text, "return p;");
    line!(text, "}}");
}

/// Tables and coefficients in the kernel's format.
fn data(plan: &Plan, method: Method) -> Vec<u32> {
    let field = plan.field();
    let tables: Vec<u8> = match method {
        Method::Peasant | Method::Unrolled => Vec::new(),
        Method::Log => {
            let powers: Vec<u8> = (0..512u64).map(|exponent| field.exp(exponent % 255) as u8).collect();
            let mut logarithms = vec![0u8; 256];
            (0..255u8).for_each(|exponent| logarithms[powers[usize::from(exponent)] as usize] = exponent);
            [logarithms, powers].concat()
        }
        Method::Full => (0..1u64 << 16).map(|index| field.mul(index >> 8, index & 255) as u8).collect(),
    };
    let words = tables.chunks(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let inputs = plan.inputs().len();
    let row = |row: usize| (0..inputs).map(move |column| plan.coefficient(row, column) as u32);
    words.chain((0..plan.outputs().len()).flat_map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::Code;

    fn plan(code: &str) -> Plan {
        code.parse::<Code>().unwrap().encode_plan().unwrap()
    }

    #[test]
    fn tables_hold_products_and_logarithms() {
        let plan = plan("3+2");
        let field = plan.field();
        let bytes =
            |method| -> Vec<u8> { data(&plan, method).iter().flat_map(|word| word.to_le_bytes()).collect() };
        let (full, log) = (bytes(Method::Full), bytes(Method::Log));
        for (a, b) in [(0u64, 7u64), (7, 0), (1, 255), (0x53, 0xca), (255, 255)] {
            let product = field.mul(a, b);
            assert_eq!(u64::from(full[(a << 8 | b) as usize]), product);
            if product != 0 {
                let sum = usize::from(log[a as usize]) + usize::from(log[b as usize]);
                assert_eq!(u64::from(log[256 + sum]), product, "{a} {b}");
            }
        }
        assert_eq!(full.len(), FULL_TABLE + 4 * 6);
        assert_eq!(log.len(), LOG_TABLES + 4 * 6);
    }

    #[test]
    fn unsupported_plans_are_refused() {
        let variant = |method| Variant { method, vector: Vector::Four };
        for (code, method) in
            [("3+2:w16", Method::Log), ("3+2:w64", Method::Peasant), ("3+2:packets=64", Method::Full)]
        {
            let error = source(&plan(code), variant(method)).unwrap_err();
            assert!(matches!(error, GpuError::Method { .. }), "{error}");
        }
        assert!(source(&plan("3+2:w16"), variant(Method::Unrolled)).is_ok());
    }

    /// FPGA compilers need code without loops.
    #[test]
    fn unrolled_has_no_loop() {
        for vector in Vector::ALL {
            let (source, _) = source(&plan("30+3"), Variant { method: Method::Unrolled, vector }).unwrap();
            assert!(!source.text.contains("for ("), "{}", source.text);
            assert_eq!(source.text.matches("sum ^= product").count(), 30);
        }
    }
}
