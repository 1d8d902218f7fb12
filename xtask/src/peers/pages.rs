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

/// Raises the pool to so many pages if we may, and says so if there are fewer then. Runners look for themselves what there is, and say what they use.
pub(crate) fn raise(wanted: u64) -> Pages {
    let pool = Path::new(POOL);
    let before = count(pool).filter(|count| *count < wanted && env::is_root());
    // Nothing is raised that nobody puts back.
    let guard = before.and_then(|before| guard(&before.to_string(), pool));
    if guard.is_some() {
        // What came of it is looked at: the kernel takes any number, and reserves what it finds in one piece.
        let _ = std::fs::write(pool, wanted.to_string());
    }
    if let Some(lack) = lack(pool, wanted) {
        eprintln!("xtask: {lack}");
    }
    Pages { guard }
}

fn count(pool: &Path) -> Option<u64> {
    std::fs::read_to_string(pool).ok()?.trim().parse().ok()
}

/// What is missing, in words.
fn lack(pool: &Path, wanted: u64) -> Option<String> {
    let there = count(pool).unwrap_or(0);
    let what =
        format!("{} has {there} pages of the {wanted} wanted: peers may be on 4 KB pages", pool.display());
    (there < wanted).then_some(what)
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
    fn a_pool_that_the_kernel_did_not_fill_is_told() {
        let pool = env::scratch("peers").unwrap().join("pool-of-another-test");
        std::fs::write(&pool, "700\n").unwrap();
        assert_eq!((lack(&pool, 700), lack(&pool, 699)), (None, None));
        assert!(lack(&pool, 701).is_some_and(|lack| lack.contains("has 700 pages of the 701 wanted")));
        assert!(lack(Path::new("/nowhere"), 1).is_some_and(|lack| lack.contains("has 0 pages")));
    }

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
