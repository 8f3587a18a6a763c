//! Buffers of a case, the pass over them, and the expected outputs.

use super::memory::Memory;
use super::rounds::Pass;
use super::{BenchError, Case, Expected, Operation, check_blocks, check_signature};
use gabion::machine::fastest;
use gabion_engine::kernel::{Backend, KernelSet, Threads};
use gabion_engine::{Error, Field, Mode, Plan, Signer};

/// Blocks of memory that a case works on.
pub(super) fn blocks_of(case: &Case) -> usize {
    match case.operation {
        Operation::Encode => case.code.blocks(),
        Operation::Repair => case.code.blocks() + case.lost(),
        // Data, the new block, the difference, redundancy.
        Operation::Update => case.code.blocks() + 2,
        Operation::Multiply | Operation::Sign => 2,
    }
}

/// Constant of region multiplication: neither 0, 1 nor a power of two in any field, which some implementations handle
/// separately.
const CONSTANT: u64 = 7;

/// Bytes of a signature of one component.
pub(super) const SIGNATURE: usize = 8;

/// Buffers of a case and the expected outputs.
pub(super) struct Stage<'a> {
    pub(super) inputs: Vec<&'a [u8]>,
    pub(super) outputs: Vec<&'a mut [u8]>,
    truth: ExpectedOutput<'a>,
}

enum ExpectedOutput<'a> {
    /// Output of the reference.
    Reference(Expected),
    /// The same, and these very blocks.
    Blocks(Expected, Vec<&'a [u8]>),
    /// The redundancy of the changed data, from output 1 on, if the outputs held `before`.
    Update { expected: Expected, before: Vec<Vec<u8>> },
    /// The signature of the input, at the start of the output.
    Signature(Field),
}

impl<'a> Stage<'a> {
    pub(super) fn new(case: &Case, memory: &'a mut Memory) -> Result<Stage<'a>, BenchError> {
        let (code, k) = (&case.code, case.code.k());
        let filled = match case.operation {
            Operation::Update => k + 1,
            Operation::Multiply | Operation::Sign => 1,
            _ => k,
        };
        let mut blocks = memory.blocks(blocks_of(case), case.block, filled, case.unaligned);
        let mut rest = blocks.split_off(filled);
        let read = |blocks: Vec<&'a mut [u8]>| blocks.into_iter().map(|block| &*block).collect::<Vec<_>>();
        let data: Vec<&'a [u8]> = read(blocks);
        Ok(match case.operation {
            Operation::Encode => {
                let truth = ExpectedOutput::Reference(Expected::of(&code.encode_plan()?, &data)?);
                Stage { inputs: data, outputs: rest, truth }
            }
            Operation::Repair => {
                let plan = repair_plan(case)?;
                let outputs = rest.split_off(code.m());
                fastest().compile(&code.encode_plan()?)?.run(&data, &mut rest)?;
                let stripe: Vec<&[u8]> = data.into_iter().chain(read(rest)).collect();
                let columns = |columns: &[usize]| columns.iter().map(|&column| stripe[column]).collect();
                let (inputs, lost): (Vec<&[u8]>, _) = (columns(plan.inputs()), columns(plan.outputs()));
                let truth = ExpectedOutput::Blocks(Expected::of(&plan, &inputs)?, lost);
                Stage { inputs, outputs, truth }
            }
            Operation::Update => {
                let plan = code.encode_plan()?;
                fastest().compile(&plan)?.run(&data[..k], &mut rest[1..])?;
                let before = rest[1..].iter().map(|block| block.to_vec()).collect();
                let changed = [&data[k..], &data[1..k]].concat();
                let truth = ExpectedOutput::Update { expected: Expected::of(&plan, &changed)?, before };
                Stage { inputs: vec![data[0], data[k]], outputs: rest, truth }
            }
            Operation::Multiply => {
                let plan = Plan::multiply(code.field(), CONSTANT, Mode::Write)?;
                let truth = ExpectedOutput::Reference(Expected::of(&plan, &data)?);
                Stage { inputs: data, outputs: rest, truth }
            }
            Operation::Sign => {
                Stage { inputs: data, outputs: rest, truth: ExpectedOutput::Signature(code.field()) }
            }
        })
    }

    /// Runs `pass` once and checks its outputs.
    pub(super) fn verify(&mut self, name: &str, pass: &mut Pass<'_>) -> Result<(), BenchError> {
        let Stage { inputs, outputs, truth } = self;
        // Outputs of an earlier kernel must not be taken for those of this one.
        match truth {
            ExpectedOutput::Update { before, .. } => {
                let pairs = outputs[1..].iter_mut().zip(before);
                pairs.for_each(|(output, before)| output.copy_from_slice(before));
            }
            _ => outputs.iter_mut().for_each(|output| output.fill(0xa5)),
        }
        pass(inputs, outputs)?;
        let found: Vec<&[u8]> = outputs.iter().map(|output| &**output).collect();
        match truth {
            ExpectedOutput::Reference(expected) => expected.check(name, &found),
            ExpectedOutput::Blocks(expected, lost) => {
                expected.check(name, &found)?;
                check_blocks(name, lost, &found)
            }
            ExpectedOutput::Update { expected, .. } => expected.check(name, &found[1..]),
            ExpectedOutput::Signature(field) => {
                check_signature(name, *field, inputs[0], &found[0][..SIGNATURE])
            }
        }
    }
}

impl Case {
    /// The plan of its operation; of an update, the one that adds the difference to all redundancy. Signatures have
    /// none.
    ///
    /// # Errors
    /// Error of the engine.
    pub fn plan(&self) -> Result<Option<Plan>, Error> {
        Ok(Some(match self.operation {
            Operation::Encode => self.code.encode_plan()?,
            Operation::Repair => repair_plan(self)?,
            Operation::Update => self.code.update_plan(&[0])?,
            Operation::Multiply => Plan::multiply(self.code.field(), CONSTANT, Mode::Write)?,
            Operation::Sign => return Ok(None),
        }))
    }
}

fn repair_plan(case: &Case) -> Result<Plan, Error> {
    let lost = case.lost_columns();
    let surviving: Vec<usize> = (lost.len()..case.code.blocks()).collect();
    case.code.repair_plan(&lost, &surviving)
}

/// The timed pass.
pub(super) fn pass<'a>(case: &Case, row: &'static KernelSet, pool: &'a Threads) -> Result<Pass<'a>, Error> {
    let run = |plan: Plan| -> Result<Pass<'a>, Error> {
        let (kernel, granule) = (row.compile(&plan)?, plan.granule());
        Ok(Box::new(move |inputs, outputs| pool.run(&*kernel, granule, inputs, outputs)))
    };
    let Some(plan) = case.plan()? else { return sign(case, row) };
    let mut whole = run(plan)?;
    if case.operation != Operation::Update {
        return Ok(whole);
    }
    let mut difference = run(Plan::difference())?;
    Ok(Box::new(move |inputs, outputs| {
        let (delta, redundancy) = outputs.split_at_mut(1);
        difference(inputs, delta)?;
        whole(&[&*delta[0]], redundancy)
    }))
}

fn sign<'a>(case: &Case, row: &'static KernelSet) -> Result<Pass<'a>, Error> {
    let signer = signer(row, case.code.field())?;
    Ok(Box::new(move |inputs, outputs| {
        let signature = signer.sign(inputs[0])?;
        outputs[0][..SIGNATURE].copy_from_slice(&signature.components()[0].to_le_bytes());
        Ok(())
    }))
}

/// 64 bits: a tower over the code's field, or GF(2^64) itself.
fn signer(row: &KernelSet, field: Field) -> Result<Signer, Error> {
    match field.w() {
        64 => Signer::with_kernel_set(row, field, 1),
        _ => Signer::tower_with_kernel_set(row, field, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::kernel::kernel_sets;

    fn case(operation: Operation, code: &str) -> Case {
        let code = code.parse().unwrap();
        let rows = kernel_sets().iter().filter(|row| row.supported()).collect();
        Case {
            operation,
            code,
            block: 8192,
            threads: 1,
            lost: None,
            unaligned: false,
            rows,
            names_kernels: true,
        }
    }

    fn staged(case: &Case, test: impl Fn(&mut Stage<'_>)) {
        let mut memory = Memory::for_most([(blocks_of(case), case.block)].into_iter()).unwrap();
        test(&mut Stage::new(case, &mut memory).unwrap());
    }

    #[test]
    fn every_operation_of_every_kernel_passes() {
        let pool = Threads::new(1).unwrap();
        for code in ["5+3", "2+4", "raidz:4+3", "cauchy:3+2:w16", "cauchy-good:4+2:w4:packets=64", "3+2:w64"]
        {
            for operation in Operation::ALL {
                let case = case(operation, code);
                staged(&case, |stage| {
                    for row in &case.rows {
                        let name = case.name(row);
                        stage.verify(&name, &mut pass(&case, row, &pool).unwrap()).expect(&name);
                    }
                });
            }
        }
    }

    /// A kernel that does nothing, or all but the last byte, is not timed.
    #[test]
    fn a_kernel_that_is_wrong_fails() {
        let pool = Threads::new(1).unwrap();
        for operation in Operation::ALL {
            let case = case(operation, "5+3");
            staged(&case, |stage| {
                let mut idle: Pass<'_> = Box::new(|_, _| Ok(()));
                assert!(stage.verify("idle", &mut idle).is_err(), "{operation}");
                let mut right = pass(&case, case.rows[0], &pool).unwrap();
                let mut nearly: Pass<'_> = Box::new(move |inputs, outputs| {
                    right(inputs, outputs)?;
                    let last = outputs.last_mut().unwrap();
                    let at = if operation == Operation::Sign { SIGNATURE - 1 } else { last.len() - 1 };
                    last[at] ^= 1;
                    Ok(())
                });
                let error = stage.verify("nearly", &mut nearly).unwrap_err();
                assert!(
                    matches!(error, BenchError::Wrong { .. } | BenchError::WrongSignature { .. }),
                    "{operation}: {error}"
                );
            });
        }
    }
}
