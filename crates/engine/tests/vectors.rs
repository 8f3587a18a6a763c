//! Known-answer tests with vectors of other libraries (`vectors/*.json`), for the reference and every kernel set.

use gabion_engine::kernel::{Backend, Reference, kernel_sets};
use gabion_engine::raidz::Reconstruction;
use gabion_engine::{Code, Field, Mode, Plan, Signer};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors<Case> {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Stripe {
    code: String,
    block: usize,
    matrix: Vec<Vec<String>>,
    data: Vec<String>,
    redundancy: Vec<String>,
    #[serde(default)]
    reconstructions: Vec<Reconstructed>,
}

#[derive(Deserialize)]
struct Reconstructed {
    method: String,
    lost: Vec<usize>,
    restored: Vec<String>,
}

#[derive(Deserialize)]
struct Product {
    w: u32,
    constant: String,
    input: String,
    product: String,
}

#[derive(Deserialize)]
struct Signed {
    kind: String,
    w: u32,
    block: String,
    components: Vec<String>,
}

fn read<Case: for<'a> Deserialize<'a>>(name: &str) -> Vec<Case> {
    let path = format!("{}/../../vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let vectors: Vectors<Case> =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(vectors.cases.len() >= 30, "{path} has lost its cases");
    vectors.cases
}

fn bytes(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "{hex}");
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn blocks(hex: &[String]) -> Vec<Vec<u8>> {
    hex.iter().map(|block| bytes(block)).collect()
}

fn backends() -> Vec<&'static dyn Backend> {
    let supported = kernel_sets().iter().filter(|row| row.supported()).map(|row| row as &dyn Backend);
    std::iter::once(&Reference as &dyn Backend).chain(supported).collect()
}

fn run(backend: &dyn Backend, plan: &Plan, inputs: &[&[u8]]) -> Vec<Vec<u8>> {
    let len = inputs.first().map_or(0, |input| input.len());
    let mut outputs = vec![vec![0x77; len]; plan.outputs().len()];
    let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut output[..]).collect();
    backend.compile(plan).unwrap().run(inputs, &mut slices).unwrap();
    outputs
}

fn check_stripes(name: &str) {
    for stripe in read::<Stripe>(name) {
        let code: Code = stripe.code.parse().unwrap();
        assert_eq!(code.to_string(), stripe.code, "vectors name codes canonically");
        for (i, row) in stripe.matrix.iter().enumerate() {
            let want: Vec<u64> = row.iter().map(|symbol| u64::from_str_radix(symbol, 16).unwrap()).collect();
            assert_eq!(code.redundancy().unwrap().row(i), want, "{name}: {code} row {i}");
        }
        let (data, redundancy) = (blocks(&stripe.data), blocks(&stripe.redundancy));
        assert_eq!((data.len(), redundancy.len()), (code.k(), code.m()), "{name}: {code}");
        assert!(data.iter().chain(&redundancy).all(|block| block.len() == stripe.block));
        let inputs: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
        let plan = code.encode_plan().unwrap();
        for backend in backends() {
            let got = run(backend, &plan, &inputs);
            assert_eq!(got, redundancy, "{name}: {code}, {} bytes on {}", stripe.block, backend.name());
        }
        for wanted in &stripe.reconstructions {
            check_reconstruction(&code, wanted, &data, &redundancy);
        }
    }
}

fn check_reconstruction(code: &Code, wanted: &Reconstructed, data: &[Vec<u8>], redundancy: &[Vec<u8>]) {
    let method = Reconstruction::ALL.into_iter().find(|method| method.name() == wanted.method);
    let plan = method.expect("a known method").plan(code, &wanted.lost).unwrap();
    let stripe: Vec<&[u8]> = data.iter().chain(redundancy).map(|block| &block[..]).collect();
    assert!(plan.inputs().iter().all(|column| !wanted.lost.contains(column)));
    let inputs: Vec<&[u8]> = plan.inputs().iter().map(|&column| stripe[column]).collect();
    for backend in backends() {
        let got = run(backend, &plan, &inputs);
        assert_eq!(got, blocks(&wanted.restored), "{code} {} on {}", wanted.method, backend.name());
    }
}

#[test]
fn isal() {
    check_stripes("isal");
}

#[test]
fn reed_solomon_erasure() {
    check_stripes("vandermonde");
}

/// The vectors were computed by additive FFTs; the matrix here is the closed form.
#[test]
fn subspace() {
    check_stripes("subspace");
}

#[test]
fn jerasure_words() {
    check_stripes("jerasure-words");
}

#[test]
fn jerasure_packets() {
    check_stripes("jerasure-packets");
}

#[test]
fn raidz_and_its_seven_reconstructions() {
    check_stripes("raidz");
    let methods: std::collections::BTreeSet<String> = read::<Stripe>("raidz")
        .into_iter()
        .flat_map(|stripe| stripe.reconstructions)
        .map(|reconstructed| reconstructed.method)
        .collect();
    assert_eq!(methods.len(), 7, "{methods:?}");
}

#[test]
fn gf_complete_products() {
    for product in read::<Product>("multiply") {
        let field = Field::new(product.w).unwrap();
        let constant = u64::from_str_radix(&product.constant, 16).unwrap();
        let plan = Plan::multiply(field, constant, Mode::Write).unwrap();
        for backend in backends() {
            let got = run(backend, &plan, &[&bytes(&product.input)]);
            assert_eq!(
                got,
                [bytes(&product.product)],
                "w{} times {constant:#x} on {}",
                product.w,
                backend.name()
            );
        }
    }
}

#[test]
fn signatures() {
    for signed in read::<Signed>("signatures") {
        let (field, count) = (Field::new(signed.w).unwrap(), signed.components.len());
        let want: Vec<u64> =
            signed.components.iter().map(|component| u64::from_str_radix(component, 16).unwrap()).collect();
        for row in kernel_sets().iter().filter(|row| row.supported()) {
            let signer = match signed.kind.as_str() {
                "field" => Signer::with_kernel_set(row, field, count),
                "tower" => Signer::tower_with_kernel_set(row, field, count),
                "independent" => Signer::independent_with_kernel_set(row),
                other => panic!("no kind of signature: {other}"),
            };
            let got = signer.unwrap().sign(&bytes(&signed.block)).unwrap();
            assert_eq!(got.components(), want, "{} w{} on {}", signed.kind, signed.w, row.name());
        }
    }
}
