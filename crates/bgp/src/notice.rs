//! NOTIFICATION messages: why a session ends (RFC 4271, 4.5 and 6; RFC 4486; RFC 5492).

use std::fmt;

/// Why a session ends, as one side tells the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The error code.
    pub code: u8,
    /// The subcode; 0 is "unspecific".
    pub subcode: u8,
    /// What is wrong, in bytes.
    pub data: Vec<u8>,
}

/// Message header error.
pub const HEADER: u8 = 1;
/// OPEN message error.
pub const OPEN: u8 = 2;
/// UPDATE message error.
pub const UPDATE: u8 = 3;
/// The hold timer expired.
pub const HOLD: u8 = 4;
/// A message that does not belong to the state (subcodes: RFC 6608).
pub const STATE: u8 = 5;
/// The session is ended on purpose.
pub const CEASE: u8 = 6;
/// ROUTE-REFRESH message error (RFC 7313).
pub const REFRESH: u8 = 7;

/// Cease: the peer announces more prefixes than it may.
pub const TOO_MANY_PREFIXES: u8 = 1;
/// Cease: shut down by who runs it.
pub const SHUTDOWN: u8 = 2;
/// Cease: no peer any more.
pub const DECONFIGURED: u8 = 3;
/// Cease: to begin anew.
pub const RESET: u8 = 4;
/// Cease: no such peer, or not now.
pub const REJECTED: u8 = 5;
/// Cease: another configuration.
pub const CHANGED: u8 = 6;
/// Cease: another connection of the same peer is kept.
pub const COLLISION: u8 = 7;

impl Notice {
    /// A notice without data.
    pub fn new(code: u8, subcode: u8) -> Self {
        Notice { code, subcode, data: Vec::new() }
    }

    /// A notice with data.
    pub fn with(code: u8, subcode: u8, data: impl Into<Vec<u8>>) -> Self {
        Notice { code, subcode, data: data.into() }
    }

    /// The text that goes with a shutdown (RFC 9003), if there is one.
    fn text(&self) -> Option<&str> {
        if self.code != CEASE || !matches!(self.subcode, SHUTDOWN | RESET) {
            return None;
        }
        let (len, text) = self.data.split_first()?;
        std::str::from_utf8(text.get(..usize::from(*len))?).ok().filter(|text| !text.is_empty())
    }

    fn name(&self) -> &'static str {
        match (self.code, self.subcode) {
            (HEADER, 1) => "connection not synchronized",
            (HEADER, 2) => "bad message length",
            (HEADER, 3) => "bad message type",
            (HEADER, _) => "message header error",
            (OPEN, 1) => "unsupported version",
            (OPEN, 2) => "bad peer AS",
            (OPEN, 3) => "bad BGP identifier",
            (OPEN, 4) => "unsupported optional parameter",
            (OPEN, 6) => "unacceptable hold time",
            (OPEN, 7) => "unsupported capability",
            (OPEN, _) => "OPEN message error",
            (UPDATE, 1) => "malformed attribute list",
            (UPDATE, 2) => "unrecognized well-known attribute",
            (UPDATE, 3) => "missing well-known attribute",
            (UPDATE, 4) => "attribute flags error",
            (UPDATE, 5) => "attribute length error",
            (UPDATE, 6) => "invalid ORIGIN",
            (UPDATE, 8) => "invalid NEXT_HOP",
            (UPDATE, 9) => "optional attribute error",
            (UPDATE, 10) => "invalid network field",
            (UPDATE, 11) => "malformed AS_PATH",
            (UPDATE, _) => "UPDATE message error",
            (HOLD, _) => "hold timer expired",
            (STATE, 1) => "unexpected message in OpenSent",
            (STATE, 2) => "unexpected message in OpenConfirm",
            (STATE, 3) => "unexpected message in Established",
            (STATE, _) => "finite state machine error",
            (CEASE, TOO_MANY_PREFIXES) => "maximum number of prefixes reached",
            (CEASE, SHUTDOWN) => "administrative shutdown",
            (CEASE, DECONFIGURED) => "peer de-configured",
            (CEASE, RESET) => "administrative reset",
            (CEASE, REJECTED) => "connection rejected",
            (CEASE, CHANGED) => "other configuration change",
            (CEASE, COLLISION) => "connection collision resolution",
            (CEASE, 8) => "out of resources",
            (CEASE, 9) => "hard reset",
            (CEASE, _) => "cease",
            (REFRESH, _) => "ROUTE-REFRESH message error",
            _ => "unknown error",
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}/{})", self.name(), self.code, self.subcode)?;
        // What a stranger wrote is shown as a quoted text.
        self.text().map_or(Ok(()), |text| write!(f, ": {text:?}"))
    }
}
