//! Errors that are the caller's to mend: exit status 2.

/// Bad usage: a wrong option, key, address or file name.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Makes a usage error of a line that says what, where, and what to do.
pub(crate) fn usage(line: impl std::fmt::Display) -> anyhow::Error {
    anyhow::Error::new(Usage(line.to_string()))
}
