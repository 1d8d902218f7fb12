//! Generated tables.
