//! What the tables with open addressing share: their slots.

pub(crate) mod slots;
