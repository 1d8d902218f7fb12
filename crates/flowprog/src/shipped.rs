//! The programs that come with Tidemill, by their numbers in decisions: C in `bpf/flow/`, made into objects by `cargo xtask bpf`.

use crate::error::LoadError;
use crate::program::Program;

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its object.
    pub object: &'static [u8],
}

impl Shipped {
    /// Loads it.
    ///
    /// # Errors
    /// None, if the object is ours.
    pub fn load(&self) -> Result<Program, LoadError> {
        Program::load(self.object, self.name)
    }
}

macro_rules! shipped {
    ($($name:literal)*) => {
        [$(Shipped { name: $name, object: include_bytes!(concat!("../../../bpf/flow/", $name, ".bpf.o")) }),*]
    };
}

/// All of them; a program's place is its number.
pub const SHIPPED: [Shipped; 5] = shipped!("granted" "declined" "grantedv2" "web" "tcp-services");
/// One rate: [`cookie::Granted`](crate::cookie::Granted).
pub const GRANTED: u8 = 0;
/// Nothing passes; the cookie is empty.
pub const DECLINED: u8 = 1;
/// Two rates: [`cookie::TwoLimits`](crate::cookie::TwoLimits).
pub const GRANTEDV2: u8 = 2;
/// Web servers: [`cookie::TwoLimits`](crate::cookie::TwoLimits).
pub const WEB: u8 = 3;
/// Ports that the cookie lists: [`cookie::TcpServices`](crate::cookie::TcpServices).
pub const TCP_SERVICES: u8 = 4;
