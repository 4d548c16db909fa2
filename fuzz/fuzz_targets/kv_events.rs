#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ckf_testkit::fuzz::kv_events(bytes));
