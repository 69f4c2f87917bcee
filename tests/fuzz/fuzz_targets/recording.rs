#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| podlapse_fuzz::target::recording::run(data));
