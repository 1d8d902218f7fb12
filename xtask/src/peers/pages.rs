//! 2 MB pages for the peers, for the time of a run.

use crate::env;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Waits until nobody holds its input any more, whatever ended us (Ctrl-C reaches it too), and puts the pool back.
const GUARD: &str = r#"trap "" INT TERM HUP; cat; echo "$1" > "$2""#;

/// While it lives the pool is large enough; then it is as before.
pub(crate) struct Pages {
    guard: Option<Child>,
}

/// Raises the pool to so many pages if we may. Runners look for themselves what there is, and say what they use.
pub(crate) fn raise(wanted: u64) -> Pages {
    let before = std::fs::read_to_string(POOL).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let before = before.filter(|count| *count < wanted && env::is_root());
    // Nothing is raised that nobody puts back.
    let guard = before.and_then(|before| guard(&before.to_string(), Path::new(POOL)));
    if guard.is_some() && std::fs::write(POOL, wanted.to_string()).is_err() {
        eprintln!("xtask: cannot raise {POOL}");
    }
    Pages { guard }
}

fn guard(before: &str, pool: &Path) -> Option<Child> {
    let mut guard = Command::new("sh");
    guard.args(["-c", GUARD, "sh", before]).arg(pool);
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().ok()
}

impl Drop for Pages {
    fn drop(&mut self) {
        // Waiting closes its input first.
        if let Some(mut guard) = self.guard.take()
            && !guard.wait().is_ok_and(|status| status.success())
        {
            eprintln!("xtask: {POOL} may not be as before");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_put_back_when_we_end_and_not_before() {
        let pool = env::scratch("peers").unwrap().join("pool-of-a-test");
        std::fs::write(&pool, "800").unwrap();
        let pages = Pages { guard: guard("3", &pool) };
        assert!(pages.guard.is_some());
        assert_eq!(std::fs::read_to_string(&pool).unwrap(), "800");
        drop(pages);
        assert_eq!(std::fs::read_to_string(&pool).unwrap(), "3\n");
    }
}
