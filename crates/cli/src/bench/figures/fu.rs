//! Q. Fu 2020: figures about longest-prefix match.

use super::Figure;

pub(super) const FIGURES: &[Figure] = &[];
