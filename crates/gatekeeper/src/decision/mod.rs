//! Decisions as they come over the wire.
