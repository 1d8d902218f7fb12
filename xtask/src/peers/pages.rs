//! 2 MB pages for the peers, for the time of a run.

use crate::env;
use std::path::Path;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// While it lives the pool is large enough; then it is as before.
pub(crate) struct Pages {
    before: Option<u64>,
}

/// Raises the pool to so many pages if we may. Runners look for themselves what there is, and say what they use.
pub(crate) fn raise(wanted: u64) -> Pages {
    let before = std::fs::read_to_string(POOL).ok().and_then(|text| text.trim().parse().ok());
    let before = before.filter(|count| *count < wanted && env::is_root());
    let raised = before.is_some() && std::fs::write(Path::new(POOL), wanted.to_string()).is_ok();
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
