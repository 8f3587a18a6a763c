//! All races.

use std::time::Instant;

use anyhow::Context as _;
use gabion_engine::raidz::Reconstruction;

use super::decode::Planning;
use super::race::Timing;
use super::raidz::Operation;
use super::{bars, decode, encode, multiply, packets, raidz, signatures, threads};

/// Data blocks and redundancy blocks.
pub(super) type Shape = (usize, usize);

/// The shapes with targets.
pub(super) const SHAPES: [Shape; 12] = [
    (4, 2),
    (8, 3),
    (8, 4),
    (10, 4),
    (12, 4),
    (16, 4),
    (20, 4),
    (30, 3),
    (45, 8),
    (64, 16),
    (128, 32),
    (30, 33),
];
/// Shapes of a run with --quick.
const QUICK_SHAPES: [Shape; 5] = [(4, 2), (10, 4), (16, 4), (45, 8), (64, 16)];

pub(super) const SMALL: usize = 4 << 10;
pub(super) const MIDDLE: usize = 64 << 10;
pub(super) const LARGE: usize = 10 << 20;
const MEGABYTE: usize = 1 << 20;

/// Largest number of 10 MiB blocks for slow libraries, which need seconds for one pass over more.
const MOST_LARGE_BLOCKS: usize = 20;

/// Our code in a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The default code, as `K+M` is read.
    Default,
    /// ISA-L's own matrix: the same bytes.
    CauchyIsal,
}

impl Choice {
    /// The identity of the code.
    pub(super) fn identity(self, (k, m): Shape) -> String {
        match self {
            Choice::Default => format!("{k}+{m}"),
            Choice::CauchyIsal => format!("cauchy-isal:{k}+{m}:w8"),
        }
    }

    /// End of a case's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Choice::Default => "",
            Choice::CauchyIsal => " cauchy-isal",
        }
    }
}

/// Contenders in a race of encoders.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Opponents {
    Everybody,
    IsalOnly,
}

pub(super) enum Work {
    Encode {
        choice: Choice,
        opponents: Opponents,
    },
    /// The loaded ISA-L against the static one.
    Versions,
    TwoThreads,
    Decode(Planning),
    Packets {
        w: usize,
    },
    MultiplyAdd {
        w: usize,
        planar: bool,
    },
    RaidZ(Operation),
    Signatures {
        components: usize,
    },
    /// Both sides as if the CPU had AVX2 and nothing newer.
    Avx2,
}

/// One race.
pub(super) struct Case {
    pub(super) name: String,
    work: Work,
    shape: Shape,
    len: usize,
}

impl Case {
    fn stripe(operation: &str, shape: Shape, len: usize, options: &str, work: Work) -> Self {
        let (k, m) = shape;
        let name = format!("{operation} {k}+{m} {}{options}", size(len));
        Self { name, work, shape, len }
    }

    pub(super) fn run(&self, end: Instant) -> anyhow::Result<Vec<Timing>> {
        let (shape, len) = (self.shape, self.len);
        match self.work {
            Work::Encode { choice, opponents } => encode::words(shape, len, choice, opponents, end),
            Work::Versions => encode::versions(shape, len, end),
            Work::TwoThreads => threads::two_threads(shape, len, end),
            Work::Decode(planning) => decode::decode(shape, len, planning, end),
            Work::Packets { w } => packets::packets(shape, w, len, end),
            Work::MultiplyAdd { w, planar: false } => multiply::multiply_add(w, len, end),
            Work::MultiplyAdd { w, planar: true } => multiply::planar_multiply_add(w, len, end),
            Work::RaidZ(operation) => raidz::raidz(operation, len, end),
            Work::Signatures { components } => signatures::signatures(shape, len, components, end),
            Work::Avx2 => encode::avx2(shape, len, end),
        }
        .with_context(|| self.name.clone())
    }

    /// Counted bytes of one pass.
    pub(super) fn bytes(&self) -> usize {
        self.shape.0 * self.len
    }

    /// Targets of the race.
    pub(super) fn bars(&self) -> Vec<(&'static str, f64)> {
        bars::of(&self.work, self.shape, self.len)
    }
}

/// The cases of a run; names are stable, so that records of different days can be compared.
pub(super) fn cases(quick: bool, versions: bool) -> Vec<Case> {
    let mut cases = encodes(quick);
    if versions {
        let all =
            [SMALL, MIDDLE, LARGE].into_iter().flat_map(|len| shapes(quick).iter().map(move |&s| (s, len)));
        cases.extend(all.map(|(shape, len)| Case::stripe("isal-versions", shape, len, "", Work::Versions)));
    }
    cases.extend(two_threads(quick));
    cases.extend(packet_cases(quick));
    cases.extend(decodes(quick));
    for w in [4, 8, 16, 32, 64] {
        let name = format!("multiply-add w{w} {}", size(MIDDLE));
        cases.push(Case { name, work: Work::MultiplyAdd { w, planar: false }, shape: (1, 1), len: MIDDLE });
    }
    for (w, len) in [(16, 4 * SMALL), (16, MIDDLE), (32, MIDDLE), (64, MIDDLE)] {
        let name = format!("multiply-add w{w} {} planar", size(len));
        cases.push(Case { name, work: Work::MultiplyAdd { w, planar: true }, shape: (1, 1), len });
    }
    cases.extend(raidz_cases(quick));
    for &shape in if quick { &[(10, 4)][..] } else { &[(4, 2), (10, 4), (16, 4)] } {
        for (components, name) in [(1, " signatures"), (2, " signatures of two components")] {
            cases.push(Case::stripe("encode", shape, MEGABYTE, name, Work::Signatures { components }));
        }
    }
    cases.extend(avx2_cases(quick));
    cases
}

fn shapes(quick: bool) -> &'static [Shape] {
    if quick { &QUICK_SHAPES } else { &SHAPES }
}

fn encodes(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for (choice, len) in [SMALL, MIDDLE, LARGE]
        .into_iter()
        .flat_map(|len| [Choice::Default, Choice::CauchyIsal].map(|choice| (choice, len)))
    {
        // Other contenders run once, without --quick.
        let crowd = choice == Choice::Default && !(quick && len == LARGE);
        for &shape in shapes(quick) {
            let crowd = crowd && (len < LARGE || shape.0 <= MOST_LARGE_BLOCKS);
            let opponents = if crowd { Opponents::Everybody } else { Opponents::IsalOnly };
            let work = Work::Encode { choice, opponents };
            cases.push(Case::stripe("encode", shape, len, choice.suffix(), work));
        }
    }
    cases
}

/// In cache: as many bytes as a core's L2 holds at least; in memory: against what two cores can move.
fn two_threads(quick: bool) -> Vec<Case> {
    let all = [
        ((10, 4), MIDDLE),
        ((4, 2), MIDDLE),
        ((16, 4), MIDDLE),
        // About 1 MiB in all blocks together; 10+4 in 64 KiB has that already.
        ((4, 2), 176 << 10),
        ((16, 4), 52 << 10),
        ((10, 4), LARGE),
        ((4, 2), LARGE),
        ((16, 4), LARGE),
    ];
    let wanted = all.into_iter().filter(|(shape, _)| !quick || *shape == (10, 4));
    wanted.map(|(shape, len)| Case::stripe("encode", shape, len, " 2threads", Work::TwoThreads)).collect()
}

/// None where the CPU lacks AVX2.
fn avx2_cases(quick: bool) -> Vec<Case> {
    let shapes: &[Shape] =
        if quick { &[(10, 4)] } else { &[(4, 2), (8, 3), (10, 4), (16, 4), (30, 3), (45, 8), (64, 16)] };
    let sizes = [SMALL, MIDDLE, LARGE].into_iter().filter(|_| encode::has_avx2());
    let all = sizes.flat_map(|len| shapes.iter().map(move |&shape| (shape, len)));
    all.map(|(shape, len)| Case::stripe("encode", shape, len, " avx2", Work::Avx2)).collect()
}

fn packet_cases(quick: bool) -> Vec<Case> {
    let case =
        |shape, w, len| Case::stripe("encode", shape, len, &format!(" packets w{w}"), Work::Packets { w });
    let sizes = [bars::PACKETS_IN_L1, bars::PACKETS_SMALL, MIDDLE, MEGABYTE];
    let shapes: &[Shape] = if quick { &[(10, 4)] } else { &[(4, 2), (8, 3), (10, 4), (12, 4)] };
    let narrow = sizes.into_iter().flat_map(|len| shapes.iter().map(move |&shape| case(shape, 4, len)));
    let wide = [(10, 4), (16, 4)].map(|shape| case(shape, 8, MIDDLE));
    narrow.chain(wide.into_iter().filter(|_| !quick)).collect()
}

fn decodes(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    let case =
        |shape, len, options, planning| Case::stripe("decode", shape, len, options, Work::Decode(planning));
    for &shape in shapes(quick) {
        cases.push(case(shape, MIDDLE, "", Planning::Before));
    }
    if !quick {
        cases.extend([(10, 4), (64, 16)].map(|shape| case(shape, LARGE, "", Planning::Before)));
    }
    for &shape in shapes(quick) {
        cases.push(case(shape, MIDDLE, " with plan", Planning::Included));
    }
    for &shape in shapes(quick) {
        cases.push(case(shape, SMALL, " fresh loss", Planning::Fresh));
        cases.push(case(shape, MIDDLE, " fresh loss", Planning::Fresh));
    }
    cases
}

fn raidz_cases(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    let lens = [MIDDLE, raidz::LARGE];
    for len in lens.into_iter().filter(|&len| !quick || len == MIDDLE) {
        let k = raidz::COLUMNS;
        for m in 1..=3 {
            let name = format!("gen raidz:{k}+{m} {}", size(len));
            let work = Work::RaidZ(Operation::Generate(m));
            cases.push(Case { name, work, shape: (k, m), len });
        }
        for with in Reconstruction::ALL {
            let name = format!("rec raidz:{k}+3 {} {}", size(len), with.name());
            let work = Work::RaidZ(Operation::Reconstruct(with));
            cases.push(Case { name, work, shape: (k, 3), len });
        }
    }
    cases
}

/// A number of bytes in names of cases.
pub(super) fn size(bytes: usize) -> String {
    gabion::size::Size(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::{Opponents, Work, cases};
    use std::collections::BTreeSet;
    use std::time::Instant;

    #[test]
    fn names_are_unique_and_quick_ones_are_among_all() {
        let names = |quick| cases(quick, true).into_iter().map(|case| case.name).collect::<Vec<_>>();
        let all: BTreeSet<String> = names(false).into_iter().collect();
        assert_eq!(all.len(), names(false).len());
        assert!(names(true).iter().all(|name| all.contains(name)));
        assert!(all.contains("encode 10+4 64KiB") && all.contains("encode 10+4 64KiB cauchy-isal"));
    }

    /// Every kind of race runs and is verified, in the shortest time.
    #[test]
    fn every_kind_of_case_runs_and_verifies() {
        for case in cases(false, true) {
            if case.len > super::MIDDLE || case.shape.0 > 10 {
                continue;
            }
            let timings = case.run(Instant::now()).expect("verified");
            assert_eq!(timings[0].name, if matches!(case.work, Work::Versions) { "isal" } else { "gabion" });
            let names: Vec<&str> = timings.iter().map(|timing| timing.name).collect();
            let here = |against: &str| names.contains(&against) || ["roof", "stream"].contains(&against);
            assert!(case.bars().iter().all(|(against, _)| here(against)), "{}: {names:?}", case.name);
            if let Work::Encode { opponents: Opponents::Everybody, .. } = case.work {
                assert!(names.len() >= 5, "{}: {names:?}", case.name);
            }
        }
    }
}
