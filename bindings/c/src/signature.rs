//! Signatures of blocks.

use crate::blocks::{self, Blocks, object};
use crate::status::{Failure, reported};

/// `gabion_signer` of the header.
pub struct Signer(gabion_engine::Signer);

/// Makes a signer.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_signer_new(signer: *mut *mut Signer) -> i32 {
    // SAFETY: the caller's promise.
    reported(|| unsafe { blocks::store(signer, || Ok(Signer(gabion_engine::Signer::independent()?))) })
}

/// Frees a signer.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_signer_free(signer: *mut Signer) {
    // SAFETY: the caller's promise.
    unsafe { blocks::free(signer) };
}

/// Signs a block.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_sign(
    signer: *const Signer,
    len: usize,
    block: *const u8,
    signature: *mut u64,
) -> i32 {
    // SAFETY: the caller's promise.
    reported(|| unsafe {
        let signer = &object(signer, "the signer")?.0;
        if signature.is_null() || !signature.is_aligned() {
            return Err(Failure::argument("the place for the signature is a null pointer or not aligned"));
        }
        let block = Blocks::new(len, &[block], &[])?;
        let signed = signer.sign(block.inputs[0])?;
        for (index, component) in signed.components().iter().enumerate() {
            signature.add(index).write(*component);
        }
        Ok(())
    })
}
