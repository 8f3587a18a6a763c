//! `gabion-bench engine --explain` and `--dump-asm`: plans on their way to machine code.

use super::{Args, quarter_redundancy};
use gabion::exit::Outcome;
use gabion_bench::engine::{Case, Explained, Operation, Runs, operations_over_shapes};
use gabion_bench::plot::Target;
use gabion_engine::Code;
use gabion_engine::kernel::{Backend, Stage};

/// Compiles every selected plan and prints the result.
pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let target = args.plot.as_deref().map(Target::new).transpose()?;
    let rows = args.rows()?;
    let mut all = Vec::new();
    for case in cases(args)? {
        for row in &rows {
            match Explained::new(&case, row)? {
                Some(explained) => {
                    print(args, all.is_empty(), &explained)?;
                    all.push(explained);
                }
                None => errln!("left out: {}: it has no plan, so nothing is compiled", case.operation),
            }
        }
    }
    if let Some(target) = target {
        target.write(&operations_over_shapes(&all, args.codes.is_empty()))?;
    }
    Ok(Outcome::Fine)
}

/// The selected operations that have plans; a chart without --code has a range of shapes.
fn cases(args: &Args) -> anyhow::Result<Vec<Case>> {
    let drawn = args.plot.is_some();
    let operations = match &args.operations[..] {
        [] if drawn => vec![Operation::Encode],
        [] => vec![Operation::Encode, Operation::Repair, Operation::Update],
        asked => Operation::ALL.into_iter().filter(|operation| asked.contains(operation)).collect(),
    };
    let mut cases = Vec::new();
    for operation in operations {
        let codes: Vec<Code> = match args.codes.is_empty() && drawn {
            true => quarter_redundancy()?,
            false => args.codes_for(operation)?,
        };
        let case = |code| Case { lost: args.lost, ..Case::unmeasured(operation, code) };
        cases.extend(codes.into_iter().map(case));
    }
    Ok(cases)
}

fn print(args: &Args, first: bool, explained: &Explained) -> anyhow::Result<()> {
    if args.json {
        for line in explained.lines() {
            outln!("{}", serde_json::to_string(&line)?);
        }
        return Ok(());
    }
    if args.explain {
        let gap = if first { "" } else { "\n" };
        out!("{gap}{}", table(explained));
    }
    if args.dump_asm {
        out!("{}", listing(explained));
    }
    Ok(())
}

fn title(explained: &Explained) -> String {
    format!("{}, kernel {}", explained.name(), explained.row.name())
}

fn table(explained: &Explained) -> String {
    let stages = explained.stages();
    let names = stages.iter().map(|stage| stage.name.len()).max().unwrap_or(0);
    let line = |cells: [&str; 5]| {
        let [name, products, additions, adding, moves] = cells;
        format!("  {name:names$}  {products:>8}  {additions:>9}  {adding:>6}  {moves:>5}\n")
    };
    let count = |count: Option<usize>| count.map_or("-".to_owned(), |count| count.to_string());
    let row = |stage: &&Stage| {
        let cells = [Some(stage.products), Some(stage.additions), stage.adding_instructions, stage.moves];
        let [products, additions, adding, moves] = &cells.map(count);
        line([&stage.name, products, additions, adding, moves])
    };
    let head = line(["", "products", "additions", "adding", "moves"]);
    let rows: String = stages.iter().map(row).collect();
    format!("{}\n{head}{rows}  {}\n", title(explained), fate(explained))
}

/// The result for a plan, in a line.
fn fate(explained: &Explained) -> String {
    let compilation = match &explained.outcome {
        Ok(compilation) => compilation,
        Err(why) => return format!("not compiled, the generic kernels serve: {why}"),
    };
    let explanation = &compilation.explanation;
    let micros = format!("compiled in {:.0} µs", 1e6 * compilation.seconds);
    let Some(bytes) = explanation.code_bytes else {
        return format!("no code for this kernel, steps are interpreted; {micros}");
    };
    let columns = match explanation.columns {
        1 => "1 register".to_owned(),
        columns => format!("{columns} registers"),
    };
    let turn = format!("{columns} of {} bytes a turn", explanation.register_bytes);
    format!("{bytes} bytes of code, {turn}; estimated {:.1} cycles a register; {micros}", explanation.cycles)
}

/// The machine code, after a line with the name of its plan.
fn listing(explained: &Explained) -> String {
    let code =
        explained.outcome.as_ref().ok().and_then(|compilation| compilation.explanation.assembly.as_deref());
    match code {
        Some(code) => format!("; {}\n{code}", title(explained)),
        None if explained.runs() == Runs::Steps => format!("; {}: no code, interpreted\n", title(explained)),
        None => format!("; {}: no code, not compiled\n", title(explained)),
    }
}
