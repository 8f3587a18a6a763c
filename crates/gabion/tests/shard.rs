//! `gabion shard` as a user runs it: the binary, real files, real damage.
//!
//! What is expected comes from the original file, from arithmetic on paper or from the system, never
//! from the code under test.

mod shard {
    #[path = "../vault/captured_output.rs"]
    mod captured_output;
    mod codes;
    mod crashes;
    mod damage;
    mod devices;
    mod disorder;
    mod layout;
    mod limits;
    mod playground;
    mod round_trip;
    mod talk;
}
