//! What the property tests and the fuzz targets share. Each function panics when the crate is wrong.

pub(crate) mod agree;
pub(crate) mod build;
pub(crate) mod touch;
