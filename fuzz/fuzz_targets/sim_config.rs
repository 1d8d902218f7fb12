//! Machines in TOML: any text is a machine or refused with a message of one line; a machine comes back from its own text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sim::machine::Config;

fuzz_target!(|text: &str| {
    match Config::from_toml(text) {
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        Ok(config) => {
            assert_eq!(config.check(), Ok(()));
            assert_eq!(Config::from_toml(&config.to_toml()), Ok(config));
        }
    }
});
