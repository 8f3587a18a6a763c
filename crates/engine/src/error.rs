//! The error type of the engine; every variant carries the numbers of the violated limit.

/// Reason why the engine refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No field of this width is defined.
    #[error("no field GF(2^{w}): w is 2 to 16, 32 or 64")]
    UnknownField {
        /// The requested width.
        w: u32,
    },
    /// The words layout packs whole symbols into bytes, which this width does not allow.
    #[error("the words layout needs w = 4, 8, 16, 32 or 64, not {w}; use packets")]
    NoWordsLayout {
        /// The requested width.
        w: u32,
    },
    /// Zero data blocks, or more blocks than the field or the family has points for.
    #[error(
        "{family} over GF(2^{w}) takes 1 or more data blocks and at most {limit} blocks in all, not {k}+{m}"
    )]
    ShapeOutOfRange {
        /// Name of the code family.
        family: &'static str,
        /// Width of the field.
        w: u32,
        /// Requested data blocks.
        k: usize,
        /// Requested redundancy blocks.
        m: usize,
        /// The largest k + m.
        limit: usize,
    },
    /// More redundancy than the family supports while any m losses can be repaired.
    #[error(
        "{family} guarantees recovery for at most {limit} redundancy blocks beside {k} data blocks, not {m}"
    )]
    TooMuchRedundancy {
        /// Name of the code family.
        family: &'static str,
        /// Requested data blocks.
        k: usize,
        /// Requested redundancy blocks.
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
        /// The requested width.
        w: u32,
    },
    /// A RAID-Z reconstruction was requested for another code.
    #[error("{code} is not a raidz code")]
    NotRaidZ {
        /// The code given.
        code: String,
    },
    /// A matrix of this size would not fit in memory or time.
    #[error("a matrix of {rows} x {columns} is over the limit of {limit} coefficients")]
    MatrixTooLarge {
        /// Requested rows.
        rows: usize,
        /// Requested columns.
        columns: usize,
        /// Largest number of coefficients.
        limit: usize,
    },
    /// A search for rows with few ones that would take too long.
    #[error("cauchy-good evaluates k·k·m scalings: {k}+{m} is over the limit of {limit}; use cauchy")]
    SearchTooLarge {
        /// Requested data blocks.
        k: usize,
        /// Requested redundancy blocks.
        m: usize,
        /// Most scalings.
        limit: usize,
    },
    /// A packet size of zero or above the limit.
    #[error("packet size {bytes} is out of range: 1 to {limit} bytes")]
    PacketOutOfRange {
        /// Requested bytes per packet.
        bytes: usize,
        /// Largest packet.
        limit: usize,
    },
    /// A code identity that cannot be parsed.
    #[error(
        "'{text}' is not a code: {reason}; write for example 10+4, cauchy:6+3:w16 or cauchy-good:10+4:w4:packets=2048"
    )]
    BadCode {
        /// The text.
        text: String,
        /// The reason.
        reason: &'static str,
    },
    /// Fewer surviving blocks than data blocks.
    #[error("{have} blocks survive, {need} are needed")]
    NotEnoughBlocks {
        /// Blocks needed (k).
        need: usize,
        /// Blocks available.
        have: usize,
    },
    /// A column that the code does not have.
    #[error("column {column} does not exist: the code has columns 0 to {last}")]
    NoSuchColumn {
        /// The column.
        column: usize,
        /// The highest column.
        last: usize,
    },
    /// A data column where a redundancy column is expected, or the reverse.
    #[error("column {column} is a {is} column, a {wanted} column is expected")]
    WrongKindOfColumn {
        /// The column.
        column: usize,
        /// Its kind.
        is: &'static str,
        /// The expected kind.
        wanted: &'static str,
    },
    /// The same column twice in one list.
    #[error("column {column} is listed twice")]
    ColumnTwice {
        /// The column.
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
    /// Matrices or vectors of incompatible sizes.
    #[error("sizes do not match: {left} and {right}")]
    SizeMismatch {
        /// Size on the left.
        left: usize,
        /// Size on the right.
        right: usize,
    },
    /// Two points of a Cauchy matrix that must differ are equal.
    #[error("the point {at:#x} occurs twice in a Cauchy matrix")]
    PointTwice {
        /// The point.
        at: u64,
    },
    /// A matrix without coefficients.
    #[error("a matrix of {rows} x {columns} has no coefficients")]
    EmptyMatrix {
        /// Rows given.
        rows: usize,
        /// Columns given.
        columns: usize,
    },
    /// A coefficient or component that is not an element of the field.
    #[error("{value:#x} is not an element of GF(2^{w})")]
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
        /// Index of the buffer, inputs first.
        index: usize,
        /// Its length.
        len: usize,
        /// The length of the first.
        want: usize,
    },
    /// The wrong number of shards for this code.
    #[error("{want} shards are expected for {k}+{m}, not {have}")]
    ShardCount {
        /// Data shards of the code.
        k: usize,
        /// Redundancy shards of the code.
        m: usize,
        /// Shards expected here: all, data or redundancy.
        want: usize,
        /// Shards given.
        have: usize,
    },
    /// Shards of different lengths.
    #[error("shard {index} has {len} bytes, the first has {want}")]
    ShardLength {
        /// Index of the shard.
        index: usize,
        /// Its length.
        len: usize,
        /// The length of the first.
        want: usize,
    },
    /// A length that is not a multiple of the symbol or of the group of packets.
    #[error("{len} bytes are not a multiple of {granule}, the smallest unit of this layout")]
    BufferGranule {
        /// The length given.
        len: usize,
        /// The unit.
        granule: usize,
    },
    /// A block with more symbols than its signature has distinct weights for.
    #[error("a signature over GF(2^{w}) covers at most {limit} symbols, the block has {symbols}")]
    BlockTooLong {
        /// Width of the signature's field.
        w: u32,
        /// Symbols in the block.
        symbols: u64,
        /// Most symbols allowed.
        limit: u64,
    },
    /// Signatures over a field that does not support them.
    #[error("signatures of this kind have w = {widths}, not {w}")]
    NoSignatures {
        /// The supported widths.
        widths: &'static str,
        /// The requested width.
        w: u32,
    },
    /// A number of signature components outside the supported range.
    #[error("a signature has 1 to {limit} components, not {components}")]
    ComponentsOutOfRange {
        /// Requested components.
        components: usize,
        /// Most components.
        limit: usize,
    },
    /// An unknown kernel name.
    #[error("no kernel '{name}'; this build has: {known}")]
    UnknownKernel {
        /// The requested name.
        name: String,
        /// The names in the table.
        known: String,
    },
    /// A kernel that this CPU cannot run.
    #[error("this CPU cannot run the kernel '{name}'; it can run: {supported}")]
    UnsupportedKernel {
        /// The requested name.
        name: String,
        /// The supported names.
        supported: String,
    },
    /// A pool of worker threads could not be created.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// Requested threads.
        threads: usize,
        /// The error of the operating system.
        reason: String,
    },
    /// A device back end failed.
    #[error("{reason}")]
    Device {
        /// Its error message.
        reason: String,
    },
}
