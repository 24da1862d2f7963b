//! Whatever bytes a file has: opening, describing and verifying it neither panics nor hangs nor allocates beyond it.
#![no_main]

mod read;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| read::read_everything(bytes));
