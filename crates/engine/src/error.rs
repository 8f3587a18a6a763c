//! What can be wrong with a request, with the numbers that say why.

/// Every way in which the engine refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No field of this width is defined.
    #[error("no field GF(2^{w}): w is 2 to 16, 32 or 64")]
    UnknownField {
        /// The width asked for.
        w: u32,
    },
    /// The words layout packs whole symbols into bytes, which this width does not allow.
    #[error("the words layout needs w = 4, 8, 16, 32 or 64, not {w}; use packets")]
    NoWordsLayout {
        /// The width asked for.
        w: u32,
    },
    /// Zero data blocks, or more blocks than the field or the family can tell apart.
    #[error(
        "{family} over GF(2^{w}) takes 1 or more data blocks and at most {limit} blocks in all, not {k}+{m}"
    )]
    ShapeOutOfRange {
        /// Name of the code family.
        family: &'static str,
        /// Width of the field.
        w: u32,
        /// Data blocks asked for.
        k: usize,
        /// Redundancy blocks asked for.
        m: usize,
        /// The largest k + m.
        limit: usize,
    },
    /// More redundancy than the family can give and still survive any m losses.
    #[error(
        "{family} guarantees recovery for at most {limit} redundancy blocks beside {k} data blocks, not {m}"
    )]
    TooMuchRedundancy {
        /// Name of the code family.
        family: &'static str,
        /// Data blocks asked for.
        k: usize,
        /// Redundancy blocks asked for.
        m: usize,
        /// The largest m for this k.
        limit: usize,
    },
    /// The family is defined over another field.
    #[error("{family} is defined over GF(2^{defined}) only, not GF(2^{w})")]
    WrongField {
        /// Name of the code family.
        family: &'static str,
        /// The width it is defined for.
        defined: u32,
        /// The width asked for.
        w: u32,
    },
    /// A reconstruction of RAID-Z was asked of another code.
    #[error("{code} is no raidz code")]
    NotRaidZ {
        /// The code given.
        code: String,
    },
    /// A matrix of this size would not fit in memory or time.
    #[error("a matrix of {rows} x {columns} is over the limit of {limit} coefficients")]
    MatrixTooLarge {
        /// Rows asked for.
        rows: usize,
        /// Columns asked for.
        columns: usize,
        /// Largest number of coefficients.
        limit: usize,
    },
    /// A search for light rows that would take too long.
    #[error("cauchy-good weighs k·k·m scalings: {k}+{m} is over the limit of {limit}; use cauchy")]
    SearchTooLarge {
        /// Data blocks asked for.
        k: usize,
        /// Redundancy blocks asked for.
        m: usize,
        /// Most scalings.
        limit: usize,
    },
    /// A packet must hold something and w packets of it must be addressable.
    #[error("packet size {bytes} is out of range: 1 to {limit} bytes")]
    PacketOutOfRange {
        /// Bytes per packet asked for.
        bytes: usize,
        /// Largest packet.
        limit: usize,
    },
    /// A code identity that cannot be read.
    #[error(
        "'{text}' is no code: {reason}; write for example 10+4, cauchy:6+3:w16 or cauchy-good:10+4:w4:packets=2048"
    )]
    BadCode {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Fewer survivors than data blocks.
    #[error("{have} blocks survive, {need} are needed")]
    NotEnoughBlocks {
        /// How many are needed (k).
        need: usize,
        /// How many there are.
        have: usize,
    },
    /// A column that the code does not have.
    #[error("column {column} does not exist: the code has columns 0 to {last}")]
    NoSuchColumn {
        /// The column named.
        column: usize,
        /// The highest column.
        last: usize,
    },
    /// A data column was named where redundancy is meant, or the other way round.
    #[error("column {column} is a {is} column, a {wanted} column is wanted")]
    WrongKindOfColumn {
        /// The column named.
        column: usize,
        /// What it is.
        is: &'static str,
        /// What is wanted.
        wanted: &'static str,
    },
    /// The same column twice in one list.
    #[error("column {column} is named twice")]
    ColumnTwice {
        /// The column named twice.
        column: usize,
    },
    /// A column that is both lost and surviving.
    #[error("column {column} is both lost and surviving")]
    LostAndSurviving {
        /// The column.
        column: usize,
    },
    /// The matrix has no inverse.
    #[error("the {size} x {size} matrix has rank {rank} and no inverse")]
    Singular {
        /// Rows and columns of the matrix.
        size: usize,
        /// Its rank.
        rank: usize,
    },
    /// Matrices or vectors whose sizes do not fit each other.
    #[error("sizes do not fit: {left} beside {right}")]
    SizeMismatch {
        /// Size on the left.
        left: usize,
        /// Size on the right.
        right: usize,
    },
    /// Two points of a Cauchy matrix that must differ do not.
    #[error("the point {at:#x} of a Cauchy matrix is taken twice")]
    PointTwice {
        /// The point.
        at: u64,
    },
    /// A matrix without coefficients, where some are needed.
    #[error("a matrix of {rows} x {columns} has no coefficients")]
    EmptyMatrix {
        /// Rows given.
        rows: usize,
        /// Columns given.
        columns: usize,
    },
    /// A coefficient or component that is no element of the field.
    #[error("{value:#x} is no element of GF(2^{w})")]
    NotAnElement {
        /// The value.
        value: u64,
        /// Width of the field.
        w: u32,
    },
    /// The wrong number of buffers for this plan.
    #[error("the plan takes {want_inputs} inputs and {want_outputs} outputs, not {inputs} and {outputs}")]
    BufferCount {
        /// Inputs of the plan.
        want_inputs: usize,
        /// Outputs of the plan.
        want_outputs: usize,
        /// Inputs given.
        inputs: usize,
        /// Outputs given.
        outputs: usize,
    },
    /// Buffers of different lengths.
    #[error("buffer {index} (inputs first) has {len} bytes, the first has {want}")]
    BufferLength {
        /// Which buffer, inputs counted first.
        index: usize,
        /// Its length.
        len: usize,
        /// The length of the first.
        want: usize,
    },
    /// A length that does not hold whole symbols or whole packets.
    #[error("{len} bytes are no multiple of {granule}, the smallest unit of this layout")]
    BufferGranule {
        /// The length given.
        len: usize,
        /// What it must be a multiple of.
        granule: usize,
    },
    /// A block with more symbols than the weights of its signature can tell apart.
    #[error("a signature over GF(2^{w}) covers at most {limit} symbols, the block has {symbols}")]
    BlockTooLong {
        /// Width of the signature's field.
        w: u32,
        /// Symbols in the block.
        symbols: u64,
        /// Most symbols allowed.
        limit: u64,
    },
    /// Signatures over a field that has none.
    #[error("signatures of this kind have w = {widths}, not {w}")]
    NoSignatures {
        /// The widths there are.
        widths: &'static str,
        /// The width asked for.
        w: u32,
    },
    /// A signature of no components, or of more than there are weights for.
    #[error("a signature has 1 to {limit} components, not {components}")]
    ComponentsOutOfRange {
        /// Components asked for.
        components: usize,
        /// Most components.
        limit: usize,
    },
    /// A kernel name that the table does not have.
    #[error("no kernel '{name}'; this build has: {known}")]
    UnknownKernel {
        /// The name asked for.
        name: String,
        /// The names in the table.
        known: String,
    },
    /// A kernel that this CPU cannot run.
    #[error("this CPU cannot run the kernel '{name}'; it can run: {supported}")]
    UnsupportedKernel {
        /// The name asked for.
        name: String,
        /// The names that would work.
        supported: String,
    },
    /// A pool of worker threads that cannot be had.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
    /// A back end that is no CPU could not do its work.
    #[error("{reason}")]
    Device {
        /// What it said.
        reason: String,
    },
}
