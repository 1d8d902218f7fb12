//! Request logs in any format: any bytes are read or refused with a message of one line, and what is read can be run: a cache counts every request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use tidemill_cachesim::Policy;
use tidemill_cachesim::log::{Format, read};
use tidemill_cachesim::run::{HashName, Run, Ways};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let (format, _) = Format::ALL[usize::from(choice % 3)];
    let policy = Policy::ALL[usize::from(choice / 3) % 6];
    match read(Cursor::new(bytes), "f", format, 1 << 16) {
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        Ok(log) => {
            assert!(log.keys().len() <= log.requests().len() && log.requests().len() <= bytes.len());
            let run = Run { policy, ways: Ways::Full, capacity: 3, hash: HashName::Crc32, seed: 1 };
            let counts = run.run(&log, 0).expect("full associativity takes every policy");
            assert_eq!(counts.gets + counts.writes + counts.deletes, log.requests().len() as u64);
        }
    }
});
