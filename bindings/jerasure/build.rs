//! The names and flags of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libJerasure.so.2");
        // liberasurecode loads and unloads the library with every instance, while threads may use its code.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
