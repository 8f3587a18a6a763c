//! Encoder and decoder of one code.

use crate::blocks::{self, Blocks, array, object, with_slices};
use crate::status::{Failure, reported};
use gabion_engine::{Code, Compiled, Engine, Field, Layout, ReedSolomon};
use std::ffi::{CStr, CString, c_char};

/// `gabion_codec` of the header.
pub struct Codec {
    rs: ReedSolomon,
    /// Its own, so that small blocks are not collected twice.
    encoder: Compiled,
    code: CString,
}

/// Makes a codec.
///
/// # Safety
/// As the header says; `code` is a string, `codec` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_codec_new(
    code: *const c_char,
    threads: usize,
    codec: *mut *mut Codec,
) -> i32 {
    let make = || {
        if code.is_null() {
            return Err(Failure::argument("the code is a null pointer"));
        }
        // SAFETY: the caller's promise.
        let text = unsafe { CStr::from_ptr(code) }.to_string_lossy();
        let code: Code = text.parse()?;
        let engine = Engine::new(threads)?;
        let (rs, encoder) = (ReedSolomon::with_code(&code, &engine)?, engine.compile(&code.encode_plan()?)?);
        Ok(Codec { rs, encoder, code: CString::new(code.to_string()).unwrap_or_default() })
    };
    // SAFETY: the caller's promise.
    reported(|| unsafe { blocks::store(codec, make) })
}

/// Frees a codec.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_codec_free(codec: *mut Codec) {
    // SAFETY: the caller's promise.
    unsafe { blocks::free(codec) };
}

/// Number of data blocks.
///
/// # Safety
/// `codec` is a codec or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_codec_k(codec: *const Codec) -> usize {
    // SAFETY: the caller's promise.
    unsafe { codec.as_ref() }.map_or(0, |codec| codec.rs.code().k())
}

/// Number of redundancy blocks.
///
/// # Safety
/// `codec` is a codec or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_codec_m(codec: *const Codec) -> usize {
    // SAFETY: the caller's promise.
    unsafe { codec.as_ref() }.map_or(0, |codec| codec.rs.code().m())
}

/// Unit of lengths.
///
/// # Safety
/// `codec` is a codec or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_codec_granule(codec: *const Codec) -> usize {
    // SAFETY: the caller's promise.
    unsafe { codec.as_ref() }.map_or(0, |codec| codec.rs.code().granule())
}

/// Identity of the code.
///
/// # Safety
/// `codec` is a codec or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_codec_code(codec: *const Codec) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { codec.as_ref() }.map_or(c"".as_ptr(), |codec| codec.code.as_ptr())
}

/// Computes the redundancy.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_encode(
    codec: *const Codec,
    len: usize,
    data: *const *const u8,
    redundancy: *const *mut u8,
) -> i32 {
    // SAFETY: the caller's promise.
    reported(|| unsafe {
        let Codec { rs, encoder, .. } = object(codec, "the codec")?;
        let data = array(data, rs.code().k(), "data")?;
        let redundancy = array(redundancy, rs.code().m(), "redundancy")?;
        with_slices(len, data, redundancy, |data, redundancy| Ok(encoder.run(data, redundancy)?))
    })
}

/// Computes missing blocks.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_reconstruct(
    codec: *const Codec,
    len: usize,
    blocks: *const *mut u8,
    present: *const u8,
) -> i32 {
    // SAFETY: the caller's promise.
    reported(|| unsafe {
        let rs = &object(codec, "the codec")?.rs;
        let count = rs.code().blocks();
        let all = array(blocks, count, "blocks")?;
        let present = array(present, count, "present")?;
        let (there, missing): (Vec<usize>, Vec<usize>) = (0..count).partition(|&column| present[column] != 0);
        let inputs: Vec<*const u8> = there.iter().map(|&column| all[column].cast_const()).collect();
        let outputs: Vec<*mut u8> = missing.iter().map(|&column| all[column]).collect();
        let mut blocks = Blocks::new(len, &inputs, &outputs)?;
        let mut stripe: Vec<Option<&[u8]>> = vec![None; count];
        for (&column, input) in there.iter().zip(&blocks.inputs) {
            stripe[column] = Some(input);
        }
        Ok(rs.reconstruct_to(&stripe, &missing, &mut blocks.outputs)?)
    })
}

/// Compares the redundancy with that of the data.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_verify(
    codec: *const Codec,
    len: usize,
    blocks: *const *const u8,
    holds: *mut i32,
) -> i32 {
    // SAFETY: the caller's promise.
    reported(|| unsafe {
        let rs = &object(codec, "the codec")?.rs;
        let all = array(blocks, rs.code().blocks(), "blocks")?;
        if holds.is_null() {
            return Err(Failure::argument("the place for the result is a null pointer"));
        }
        let blocks = Blocks::new(len, all, &[])?;
        holds.write(i32::from(rs.verify(&blocks.inputs)?));
        Ok(())
    })
}

/// Updates the redundancy.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_update(
    codec: *const Codec,
    column: usize,
    len: usize,
    before: *const u8,
    after: *const u8,
    redundancy: *const *mut u8,
) -> i32 {
    // SAFETY: the caller's promise.
    reported(|| unsafe {
        let rs = &object(codec, "the codec")?.rs;
        let redundancy = array(redundancy, rs.code().m(), "redundancy")?;
        let mut blocks = Blocks::new(len, &[before, after], redundancy)?;
        Ok(rs.update(column, blocks.inputs[0], blocks.inputs[1], &mut blocks.outputs)?)
    })
}

/// Coefficients of columns from k others.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_codec_coefficients(
    codec: *const Codec,
    count: usize,
    wanted: *const usize,
    sources: *const usize,
    coefficients: *mut u8,
) -> i32 {
    // SAFETY: the caller's promise.
    reported(|| unsafe {
        let code = object(codec, "the codec")?.rs.code();
        if count > code.blocks() {
            return Err(Failure::argument(format!("{count} columns of {code}")));
        }
        let wanted = array(wanted, count, "wanted")?;
        let sources = array(sources, code.k(), "sources")?;
        if coefficients.is_null() {
            return Err(Failure::argument("the place for coefficients is a null pointer"));
        }
        if code.field() != Field::GF8 || code.layout() != Layout::Words {
            return Err(Failure::argument(format!("{code} is not over GF(2^8) with whole bytes")));
        }
        let plan = code.repair_plan(wanted, sources)?;
        for (row, column) in wanted.iter().enumerate() {
            let output = plan.outputs().iter().position(|output| output == column);
            for (index, source) in sources.iter().enumerate() {
                let input = plan.inputs().iter().position(|input| input == source);
                // A source that a repair does not need has no input.
                let value = output.zip(input).map_or(0, |(output, input)| plan.coefficient(output, input));
                coefficients.add(row * code.k() + index).write(value as u8);
            }
        }
        Ok(())
    })
}
