//! 2 MB pages for the peers, for the time of a run.

use crate::env;
use std::path::Path;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Pages that the largest runner needs, with room: 2 GB.
const WANTED: u64 = 1024;

/// While it lives the pool is large enough; then it is as before.
pub(crate) struct Pages {
    before: Option<u64>,
}

/// Raises the pool if we may. Runners look for themselves what there is, and say what they use.
pub(crate) fn raise() -> Pages {
    let before = std::fs::read_to_string(POOL).ok().and_then(|text| text.trim().parse().ok());
    let before = before.filter(|count| *count < WANTED && env::is_root());
    let raised = before.is_some() && std::fs::write(Path::new(POOL), WANTED.to_string()).is_ok();
    Pages { before: before.filter(|_| raised) }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && std::fs::write(POOL, before.to_string()).is_err()
        {
            eprintln!("xtask: cannot put {POOL} back to {before}");
        }
    }
}
