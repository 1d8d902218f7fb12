//! Who may call over TCP: a file of tokens, each with what it is good for.
//!
//! ```text
//! # NAME     SCOPE  TOKEN (24 to 4,096 characters, such as `openssl rand -hex 24` makes)
//! prometheus read   6f1d...
//! admin      all    93c0...
//! ```
//! `read`: what looks and shows no packets (captures, traces). `all`: everything. Of a token only its digest is kept.

use sha2::{Digest as _, Sha256};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::watch;

/// The fewest characters of a token, and the most: no head of a request has room for more.
const LEAST: usize = 24;
const MOST: usize = 4096;
/// The longest file: a wrong one is not read to its end.
pub(crate) const LONGEST: u64 = 1 << 20;

/// What a token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Read,
    All,
}

/// What is kept of a token.
pub(crate) type Digest32 = [u8; 32];

/// Tokens by their digests. They can be [renewed](crate::Tcp::renew) while they are asked.
pub struct Tokens {
    list: RwLock<Vec<(Digest32, Scope)>>,
    /// Hears of every renewal.
    renewed: watch::Sender<()>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens", self.list().len())
    }
}

/// What is wrong with a file of tokens.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct TokensError {
    path: PathBuf,
    what: String,
}

impl Tokens {
    /// Reads a file. It must not be readable by everybody.
    ///
    /// # Errors
    /// It cannot be read, others can read it, or a line is wrong; with the line's number.
    pub fn read(path: &Path) -> Result<Tokens, TokensError> {
        let fail = |what: String| TokensError { path: path.to_owned(), what };
        let size = for_few(path).map_err(fail)?;
        if size > LONGEST {
            return Err(fail(format!("has {size} bytes: at most {LONGEST}")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
        Self::parse(&text).map_err(fail)
    }

    fn new(list: Vec<(Digest32, Scope)>) -> Tokens {
        Tokens { list: RwLock::new(list), renewed: watch::Sender::new(()) }
    }

    fn list(&self) -> RwLockReadGuard<'_, Vec<(Digest32, Scope)>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes others in their place.
    pub(crate) fn renew(&self, fresh: &Tokens) {
        let fresh = fresh.list().clone();
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        self.renewed.send_replace(());
    }

    /// Returns when a token is good for less than `needed`: it was taken back, or may only look from now on.
    pub(crate) async fn taken_back(self: Arc<Self>, token: Digest32, needed: Scope) {
        let mut renewed = self.renewed.subscribe();
        loop {
            // Marked as seen before looking, so that no renewal comes in between.
            renewed.borrow_and_update();
            if self.of(&token).is_none_or(|scope| scope != Scope::All && needed == Scope::All) {
                return;
            }
            if renewed.changed().await.is_err() {
                return;
            }
        }
    }

    /// What a token is good for now.
    fn of(&self, token: &Digest32) -> Option<Scope> {
        self.list().iter().find(|(known, _)| known == token).map(|(_, scope)| *scope)
    }

    /// Reads the text of a file.
    fn parse(text: &str) -> Result<Tokens, String> {
        let mut tokens = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.first().is_none_or(|word| word.starts_with('#')) {
                continue;
            }
            let wrong = |what: &str| Err(format!("line {}: {what}", number + 1));
            let [_, scope, token] = words[..] else {
                return wrong("give NAME SCOPE TOKEN");
            };
            let scope = match scope {
                "read" => Scope::Read,
                "all" => Scope::All,
                _ => return wrong(&format!("{scope:?} is no scope: read or all")),
            };
            if !(LEAST..=MOST).contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return wrong(&format!("a token has {LEAST} to {MOST} printable ASCII characters"));
            }
            let digest = digest(token);
            if tokens.iter().any(|(known, _)| *known == digest) {
                return wrong("this token is in the file already");
            }
            tokens.push((digest, scope));
        }
        if tokens.is_empty() { Err("has no token in it".into()) } else { Ok(Tokens::new(tokens)) }
    }

    /// What `Authorization: Bearer TOKEN` allows; `None` if it is nobody's.
    pub(crate) fn scope(&self, authorization: Option<&str>) -> Option<(Digest32, Scope)> {
        let (scheme, token) = authorization?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        // What the time of the comparison tells is about a digest, which nobody can choose.
        let digest = digest(token.trim());
        self.of(&digest).map(|scope| (digest, scope))
    }
}

/// The size of a file, if not everybody can use it.
pub(crate) fn for_few(path: &Path) -> Result<u64, String> {
    // Before it is opened: a pipe would be waited for.
    let data = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !data.is_file() {
        return Err("is no file".into());
    }
    if data.mode() & 0o007 != 0 {
        return Err(format!("has mode {:o}, so that everybody can use it: chmod o= it", data.mode() & 0o777));
    }
    Ok(data.len())
}

fn digest(token: &str) -> Digest32 {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const ADMIN: &str = "admin-admin-admin-admin-admin";
    const READER: &str = "reader-reader-reader-reader";

    #[test]
    fn tokens_have_their_scopes_and_others_none() {
        let text = format!("# comment\n\nprometheus read {READER}\n  admin\tall {ADMIN}  \n");
        let tokens = Tokens::parse(&text).unwrap();
        let scope = |header: &str| tokens.scope(Some(header)).map(|(_, scope)| scope);
        assert_eq!(scope(&format!("Bearer {ADMIN}")), Some(Scope::All));
        assert_eq!(scope(&format!("bearer  {READER}")), Some(Scope::Read));
        for wrong in ["", "Bearer", "Bearer ", "Basic admin-admin-admin-admin-admin", "Bearer x"] {
            assert_eq!(scope(wrong), None, "{wrong}");
        }
        assert_eq!(scope(&format!("Bearer {ADMIN}x")), None);
        assert!(tokens.scope(None).is_none());
        assert!(!format!("{tokens:?}").contains("admin"));
    }

    #[test]
    fn wrong_files_are_told_with_their_lines() {
        for (text, part) in [
            ("", "no token"),
            ("# nothing\n", "no token"),
            ("a read\n", "line 1: give NAME SCOPE TOKEN"),
            (&format!("a read {READER} more\n"), "line 1: give NAME"),
            (&format!("\na write {READER}\n"), "line 2: \"write\" is no scope"),
            ("a all short\n", "line 1: a token has 24 to"),
            (&format!("a all {READER}\u{e9}\n"), "printable ASCII"),
            (&format!("a all {READER}\nb read {READER}\n"), "line 2: this token is in the file"),
        ] {
            let error = Tokens::parse(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_file_that_all_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, format!("a all {ADMIN}\n")).unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        let error = Tokens::read(&path).unwrap_err().to_string();
        assert!(error.contains("mode 644") && error.contains("tokens"), "{error}");
        mode(0o640);
        assert_eq!(Tokens::read(&path).unwrap().list().len(), 1);
        std::fs::write(&path, "#".repeat(LONGEST as usize + 1)).unwrap();
        assert!(Tokens::read(&path).unwrap_err().to_string().contains("bytes: at most"));
        assert!(Tokens::read(folder.path()).unwrap_err().to_string().contains("no file"));
        assert!(Tokens::read(&folder.path().join("none")).is_err());
    }
}
