//! The simple interface: encodes ten shards, loses four, restores them, and updates one.
//!
//! Run with `cargo run -p gabion-engine --example shards`.

use gabion_engine::{Error, ReedSolomon};

fn main() -> Result<(), Error> {
    let rs = ReedSolomon::new(10, 4)?;
    let mut shards: Vec<Vec<u8>> = (0..14).map(|shard| vec![shard; 4096]).collect();
    rs.encode(&mut shards)?;

    // Any four may be missing.
    let mut stripe: Vec<Option<Vec<u8>>> = shards.iter().cloned().map(Some).collect();
    [0, 3, 9, 12].into_iter().for_each(|lost| stripe[lost] = None);
    rs.reconstruct(&mut stripe)?;
    assert!(stripe.iter().flatten().eq(&shards));

    // Shard 3 changes: the redundancy follows without reading the other data.
    let new = vec![0xab; 4096];
    let (data, redundancy) = shards.split_at_mut(10);
    rs.update(3, &data[3], &new, redundancy)?;
    data[3] = new;
    assert!(rs.verify(&shards)?);
    println!("{}: restored, updated, verified", rs.code());
    Ok(())
}
