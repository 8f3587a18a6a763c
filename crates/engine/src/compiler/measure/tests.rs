use super::*;

#[test]
fn every_operation_is_measured_or_refused_with_a_reason() {
    let mut ran = 0;
    for operation in Operation::ALL {
        for width in Width::ALL {
            match Repeated::new(operation, width) {
                Ok(mut repeated) => {
                    repeated.run(3);
                    assert_eq!(repeated.turn_bytes(), REPEATS * width.bytes());
                    ran += 1;
                }
                Err(MeasureError::Unsupported { needs, .. }) => {
                    assert_eq!(missing(operation, width), Some(needs));
                    println!("SKIP {} {width}: needs {needs}", operation.name());
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    // General registers can load, store, XOR and shift on every x86-64.
    let machine_code = cfg!(all(feature = "compiler", target_arch = "x86_64"));
    assert!(ran >= 4 || !machine_code);
    let scalar = |operation| missing(operation, Width::Scalar).is_none();
    assert!(!scalar(Operation::Affine) && scalar(Operation::Xor) == machine_code);
}

#[cfg(all(feature = "compiler", target_arch = "x86_64"))]
mod emitted {
    use super::*;

    #[test]
    fn buffers_of_whole_iterations_are_loaded_and_others_refused() {
        for width in Width::ALL.into_iter().filter(|width| missing(Operation::Load, *width).is_none()) {
            for access in [Access::Plain, Access::Unrolled, Access::Prefetched { ahead: 512 }] {
                let loads = Loads::new(width, access).unwrap();
                let unit = loads.unit();
                let buffer = vec![1u8; 5 * unit + 1];
                for turns in [1, 5] {
                    loads.run(&buffer[1..][..turns * unit], 2).unwrap();
                }
                for wrong in [0, unit - 1, unit + 1] {
                    assert!(matches!(loads.run(&buffer[..wrong], 1), Err(MeasureError::Buffer { .. })));
                }
            }
        }
    }

    /// An output holds the last load into its register: this checks that all lines of inputs were read, all lines of
    /// outputs written, and nothing beyond.
    #[test]
    fn streams_read_all_inputs_and_write_all_outputs() {
        #[repr(align(64))]
        struct Block([u8; 4 * LINE]);
        let bytes = 3 * LINE;
        let width = Width::widest().bytes();
        let registers = if Width::widest() == Width::Scalar { 4 } else { 16 };
        for (inputs, outputs) in [(1, 0), (1, 1), (4, 2), (10, 4), (20, 3)] {
            for stores in [Stores::Ordinary, Stores::NonTemporal] {
                let fill = |input: usize| Block(std::array::from_fn(|at| (input * 31 + at * 7) as u8));
                let data: Vec<Block> = (0..inputs).map(fill).collect();
                let mut results: Vec<Block> = (0..outputs).map(|_| Block([0xee; 4 * LINE])).collect();
                let streams = Streams::new(inputs, outputs, stores, 512 * (inputs % 2)).unwrap();
                let views: Vec<&[u8]> = data.iter().map(|block| &block.0[..bytes]).collect();
                let mut targets: Vec<&mut [u8]> =
                    results.iter_mut().map(|block| &mut block.0[..bytes]).collect();
                streams.run(&views, &mut targets).unwrap();
                for (output, result) in results.iter().enumerate() {
                    let register = (output % inputs) % registers;
                    let source = (0..inputs).rev().find(|input| input % registers == register).unwrap();
                    for (at, &byte) in result.0[..bytes].iter().enumerate() {
                        // All pieces of a line go through one register, so the last one remains.
                        let line = at / LINE * LINE;
                        assert_eq!(
                            byte,
                            data[source].0[line + LINE - width + at % width],
                            "{inputs} {outputs} {at}"
                        );
                    }
                    assert_eq!(result.0[bytes..], [0xee; LINE]);
                }
            }
        }
        assert!(matches!(Streams::new(0, 1, Stores::Ordinary, 0), Err(MeasureError::Blocks { .. })));
        let streams = Streams::new(1, 1, Stores::NonTemporal, 0).unwrap();
        let (input, mut output) = (Block([0; 4 * LINE]), Block([0; 4 * LINE]));
        let mut run =
            |input: &[u8], range: std::ops::Range<usize>| streams.run(&[input], &mut [&mut output.0[range]]);
        assert!(matches!(run(&input.0[..64], 1..65), Err(MeasureError::Blocks { .. })), "not aligned");
        assert!(matches!(run(&input.0[..64], 0..128), Err(MeasureError::Blocks { .. })), "not as long");
        assert!(matches!(run(&input.0[..60], 0..60), Err(MeasureError::Buffer { .. })), "no whole line");
        assert!(run(&input.0[..64], 64..128).is_ok());
    }

    #[test]
    fn a_chase_goes_around_its_ring() {
        for order in [Order::Descending, Order::Random(5)] {
            for (bytes, stride) in [(64, 64), (4096, 64), (4096, 1024), (80, 8)] {
                let mut chase = Chase::new(bytes, stride, order).unwrap();
                let stops = stops(bytes / stride, order);
                let mut sorted = stops.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..bytes / stride).collect::<Vec<_>>(), "each once");
                assert_eq!(chase.stops(), stops.len());
                for turns in [1, 2, 4] {
                    chase.run(2);
                    let loads = CHASED * 2 * turns_so_far(turns);
                    assert_eq!(chase.ring.place(), stops[loads % stops.len()] * stride / size_of::<usize>());
                }
            }
        }
        assert!(matches!(Chase::new(100, 64, Order::Descending), Err(MeasureError::Buffer { .. })));
        assert!(matches!(Chase::new(100, 0, Order::Descending), Err(MeasureError::Buffer { .. })));
        assert!(matches!(Chase::new(0, 64, Order::Descending), Err(MeasureError::Buffer { .. })));
    }

    /// Iterations so far in units of two.
    fn turns_so_far(turns: usize) -> usize {
        turns.ilog2() as usize + 1
    }
}
