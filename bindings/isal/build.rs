//! The names and flags of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Tests ask cargo for the packages of this target.
    println!("cargo:rustc-env=GABION_TARGET={}", std::env::var("TARGET").unwrap_or_default());
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libisal.so.2");
        // Programs such as liberasurecode load and unload the library with every instance. Its code may be in use then,
        // by a thread that compiles a plan or by destructors of thread-local caches.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
