//! Signs the blocks of a stripe while it is encoded, and checks the linear law: the signatures of the redundancy are
//! the code applied to the signatures of the data. So redundancy can be verified without reading it.
//!
//! Run with `cargo run -p gabion-engine --example signatures`.

use gabion_engine::{Code, Engine, Error, Signer};

const BLOCK: usize = 64 << 10;

fn main() -> Result<(), Error> {
    let code: Code = "4+2".parse()?;
    let engine = Engine::new(1)?;
    // Two components of 64 bits at independent points: the choice for stored data.
    let signer = Signer::independent()?;

    let data: Vec<Vec<u8>> = (0..code.k()).map(|column| vec![0x10 + column as u8; BLOCK]).collect();
    let mut redundancy = vec![vec![0; BLOCK]; code.m()];
    let inputs: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
    let mut outputs: Vec<&mut [u8]> = redundancy.iter_mut().map(|block| &mut block[..]).collect();
    let signed = engine.compile(&code.encode_plan()?)?.run_signed(&signer, &inputs, &mut outputs)?;

    // The law: the code's matrix maps signatures of data to signatures of redundancy.
    let expected = signer.transform(code.redundancy()?, &signed.inputs)?;
    assert_eq!(signed.outputs, expected);

    // One changed bit changes the signature.
    redundancy[0][1000] ^= 1;
    assert_ne!(signer.sign(&redundancy[0])?, expected[0]);
    println!("signatures of data:       {:?}", signed.inputs);
    println!("signatures of redundancy: {:?}", signed.outputs);
    Ok(())
}
