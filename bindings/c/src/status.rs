//! Results of functions, and the text of the last failure of each thread.

use gabion_engine::Error;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `gabion_status` of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// An argument that does not fit.
    InvalidArgument = 1,
    /// No code of this identity.
    InvalidCode = 2,
    /// Fewer than k blocks are left.
    NotEnoughBlocks = 3,
    /// Threads or kernels that this machine does not provide.
    Unavailable = 4,
    /// A defect of this library.
    Internal = 5,
}

/// A failure with its text.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Status, pub(crate) String);

impl Failure {
    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure(Status::InvalidArgument, text.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match error {
            Error::NotEnoughBlocks { .. } => Status::NotEnoughBlocks,
            Error::BadCode { .. }
            | Error::UnknownField { .. }
            | Error::NoWordsLayout { .. }
            | Error::ShapeOutOfRange { .. }
            | Error::TooMuchRedundancy { .. }
            | Error::WrongField { .. }
            | Error::SearchTooLarge { .. }
            | Error::PacketOutOfRange { .. } => Status::InvalidCode,
            Error::Threads { .. } | Error::UnknownKernel { .. } | Error::UnsupportedKernel { .. } => {
                Status::Unavailable
            }
            _ => Status::InvalidArgument,
        };
        Failure(status, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of an exported function. No panic leaves it.
pub(crate) fn reported(work: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(work));
    let result = result.unwrap_or_else(|_| Err(Failure(Status::Internal, "a panic inside libgabion".into())));
    let Err(Failure(status, text)) = result else { return Status::Ok as i32 };
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // In destructors of thread-local values of a thread that ends, the text is lost and the status remains.
    let _ = LAST.try_with(|last| last.replace(text));
    status as i32
}

/// The text of the last failure of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// A sentence about a status.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_status_text(status: i32) -> *const c_char {
    let text: &'static CStr = match status {
        0 => c"success",
        1 => c"an argument does not fit",
        2 => c"no such code",
        3 => c"fewer than k blocks are left",
        4 => c"this machine does not provide the threads or kernels",
        5 => c"a defect of libgabion",
        _ => c"an unknown status",
    };
    text.as_ptr()
}

/// The ABI of this library; `GABION_ABI_VERSION` of the header.
pub const ABI_VERSION: u32 = 1;

/// The ABI of this library.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_abi_version() -> u32 {
    ABI_VERSION
}

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn gabion_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
