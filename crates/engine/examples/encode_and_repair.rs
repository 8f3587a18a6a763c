//! Encodes a stripe of four data blocks into two redundancy blocks, loses two blocks and repairs them.
//!
//! Run with `cargo run -p gabion-engine --example encode_and_repair`.

use gabion_engine::kernel::Backend;
use gabion_engine::{Code, Engine, Error};

const BLOCK: usize = 64 << 10;

fn main() -> Result<(), Error> {
    // Four data and two redundancy blocks: any two losses can be repaired.
    let code: Code = "4+2".parse()?;
    // 0: as many threads as the process may run at once.
    let engine = Engine::new(0)?;

    // Columns 0 to 3 are data, 4 and 5 redundancy.
    let data: Vec<Vec<u8>> = (0..code.k()).map(|column| vec![column as u8 + 1; BLOCK]).collect();
    let mut redundancy = vec![vec![0; BLOCK]; code.m()];
    let encoder = engine.compile(&code.encode_plan()?)?;
    let inputs: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
    let mut outputs: Vec<&mut [u8]> = redundancy.iter_mut().map(|block| &mut block[..]).collect();
    encoder.run(&inputs, &mut outputs)?;

    // Columns 1 and 4 are lost. The plan lists the columns to read, in the order of its inputs.
    let lost = [1, 4];
    let plan = code.repair_plan(&lost, &[0, 2, 3, 5])?;
    let stripe: Vec<&[u8]> = data.iter().chain(&redundancy).map(|block| &block[..]).collect();
    let sources: Vec<&[u8]> = plan.inputs().iter().map(|&column| stripe[column]).collect();
    let (mut first, mut second) = (vec![0; BLOCK], vec![0; BLOCK]);
    engine.compile(&plan)?.run(&sources, &mut [&mut first, &mut second])?;

    assert!(first == stripe[1] && second == stripe[4]);
    println!("{code} on {}: repaired columns {lost:?} from {:?}", engine.kernel_set().name(), plan.inputs());
    Ok(())
}
