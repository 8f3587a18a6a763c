//! The name under which the loader finds the shared library; its number is that of the ABI.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgabion.so.1");
        // A thread that compiles a plan may still run when a program closes the library.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
