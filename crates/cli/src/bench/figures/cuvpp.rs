//! CuVPP, filter-based longest-prefix matching: its figures and tables.

use super::Figure;

pub(super) const FIGURES: &[Figure] = &[];
