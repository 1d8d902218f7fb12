//! What comes and goes.
