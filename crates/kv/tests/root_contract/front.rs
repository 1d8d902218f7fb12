//! The cache that this suite is about: the kernel's.

use crate::contract::lab::Lab;

pub(crate) fn cached() -> Lab {
    Lab::cached()
}
