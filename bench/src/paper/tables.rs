//! Plans by table look-up, symbol by symbol: the reference of the papers.

use gabion_engine::kernel::{Backend, Kernel};
use gabion_engine::{Error, Layout, Mode, Plan};

/// One table of products per coefficient; coefficients of one are added without any.
pub(super) struct Tables;

/// The products of one constant.
enum Table {
    One,
    /// Of every byte: a symbol of 8 bits, or two of 4.
    Bytes(Box<[u8; 256]>),
    /// Of every symbol of 16 bits.
    Pairs(Vec<u16>),
    /// Of every value of each byte of a symbol of 32 bits: all symbols would not fit into memory.
    Quarters(Box<[[u32; 256]; 4]>),
}

struct TableKernel {
    plan: Plan,
    /// Output by output.
    tables: Vec<Table>,
}

impl Backend for Tables {
    fn name(&self) -> &str {
        "table"
    }

    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error> {
        let fits = matches!(plan.field().w(), 4 | 8 | 16 | 32);
        assert!(
            fits && plan.layout() == Layout::Words && plan.mode() == Mode::Write,
            "the experiments ask for words of 4 to 32 bits only"
        );
        let matrix = plan.matrix()?;
        let coefficients = (0..matrix.rows()).flat_map(|row| matrix.row(row));
        let tables = coefficients.map(|&coefficient| table(plan, coefficient)).collect();
        Ok(Box::new(TableKernel { plan: plan.clone(), tables }))
    }
}

fn table(plan: &Plan, constant: u64) -> Table {
    let field = plan.field();
    let product = |value: u64| field.mul(constant, value);
    match field.w() {
        _ if constant == 1 => Table::One,
        4 => Table::Bytes(Box::new(std::array::from_fn(|byte| {
            let (low, high) = (byte as u64 & 15, byte as u64 >> 4);
            (product(low) | product(high) << 4) as u8
        }))),
        8 => Table::Bytes(Box::new(std::array::from_fn(|byte| product(byte as u64) as u8))),
        16 => Table::Pairs((0..1 << 16).map(|pair| product(pair) as u16).collect()),
        _ => Table::Quarters(Box::new(std::array::from_fn(|place| {
            std::array::from_fn(|byte| product((byte as u64) << (8 * place)) as u32)
        }))),
    }
}

impl Kernel for TableKernel {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.plan.check_buffers(inputs, outputs)?;
        for (output, tables) in outputs.iter_mut().zip(self.tables.chunks(inputs.len().max(1))) {
            output.fill(0);
            for (input, table) in inputs.iter().zip(tables) {
                table.add_products(output, input);
            }
        }
        Ok(())
    }
}

impl Table {
    fn add_products(&self, output: &mut [u8], input: &[u8]) {
        match self {
            Table::One => output.iter_mut().zip(input).for_each(|(output, input)| *output ^= input),
            Table::Bytes(table) => {
                output.iter_mut().zip(input).for_each(|(output, input)| *output ^= table[*input as usize]);
            }
            Table::Pairs(table) => {
                for (output, input) in output.as_chunks_mut().0.iter_mut().zip(input.as_chunks().0) {
                    let product = table[u16::from_le_bytes(*input) as usize];
                    *output = (u16::from_le_bytes(*output) ^ product).to_le_bytes();
                }
            }
            Table::Quarters(tables) => {
                for (output, input) in output.as_chunks_mut::<4>().0.iter_mut().zip(input.as_chunks::<4>().0)
                {
                    let products = tables.iter().zip(input).map(|(table, byte)| table[*byte as usize]);
                    let sum = products.fold(u32::from_le_bytes(*output), |sum, product| sum ^ product);
                    *output = sum.to_le_bytes();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::conformance::TestRng;
    use gabion_engine::kernel::Reference;
    use gabion_engine::{Code, Field};

    #[test]
    fn tables_make_what_the_reference_makes() {
        let multiply = [Field::GF4, Field::GF8, Field::GF16, Field::GF32]
            .map(|field| Plan::multiply(field, 7, Mode::Write).unwrap());
        let codes = ["5+3", "raidz:4+3", "3+2:w16"].map(|code| code.parse::<Code>().unwrap());
        let encode = codes.map(|code| code.encode_plan().unwrap());
        for plan in multiply.iter().chain(&encode) {
            let block = |seed: u64| {
                let mut block = vec![0; 1024];
                TestRng(seed).fill(&mut block);
                block
            };
            let data: Vec<Vec<u8>> = (0..plan.inputs().len() as u64).map(block).collect();
            let inputs: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
            let run = |backend: &dyn Backend| {
                let mut outputs = vec![vec![0xa5; 1024]; plan.outputs().len()];
                let mut views: Vec<&mut [u8]> = outputs.iter_mut().map(|block| &mut block[..]).collect();
                backend.compile(plan).unwrap().run(&inputs, &mut views).unwrap();
                outputs
            };
            assert!(run(&Tables) == run(&Reference), "{plan:?}");
        }
    }
}
