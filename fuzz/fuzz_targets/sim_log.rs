//! Access logs: any text is read or refused with a message of one line; what is read is written again as it was read, and runs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sim::log::Log;
use tidemill_sim::machine::{Config, Memory};
use tidemill_sim::mix::RTE_HASH;
use tidemill_sim::study::Options;
use tidemill_sim::study::run::{Asking, Series, replay};

fuzz_target!(|text: &str| {
    match Log::parse(text) {
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        Ok(log) => {
            assert_eq!(Log::parse(&log.text()), Ok(log.clone()));
            let mut config = Config::skylake_sp();
            (config.cores, config.slices, config.mesh.columns, config.cache.llc_kib) = (1, 4, 2, 64);
            (config.cache.l1_kib, config.cache.l2_kib) = (4, 8);
            let options = Options { config, lookups: 16, warm: 0, ..Options::default() };
            for series in [Series::Software(RTE_HASH), Series::NonBlocking(8)] {
                let outcome = replay(Memory::new(&options.config), &log, series, &options, Asking::default());
                assert_eq!(outcome.lookups, 16);
            }
        }
    }
});
