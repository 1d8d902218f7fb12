//! Flow programs: those that there are, and the cookies of one worker's flows.
//!
//! ```text
//! Catalog, shared     0 granted  1 declined  2 grantedv2  3 web  4 tcp-services   5 ... 255: of the configuration
//! Programs, a worker  cookies | c0 | c1 | ...     64 bytes each, made at start; a flow's state has the place of its own
//! ```
//!
//! A place is taken by [`Programs::install`] and given back by [`Programs::release`], which whoever ends a state with a program calls. Programs are verified when they are
//! loaded ([`tidemill_flowprog`]): none can loop, read or write what is not its own, or see another flow.

use crate::config::ProgramConfig;
use crate::decision::Cookie as Brought;
use crate::error::GateError;
use crate::flow::{Act, FlowState, Installed};
use std::sync::Arc;
use tidemill_flow::table::SizeError;
use tidemill_flowprog::shipped::SHIPPED;
use tidemill_flowprog::{Context, Cookie, MAX_OBJECT, Program, Ruling};

/// The programs by their numbers.
#[derive(Debug, Clone)]
pub struct Catalog(Arc<[Option<Program>]>);

impl Catalog {
    /// The shipped programs, and those of the configuration.
    ///
    /// # Errors
    /// A number that is taken or too large, a file that cannot be read, a program that is not known to be safe.
    pub(crate) fn new(configured: &[ProgramConfig]) -> Result<Self, GateError> {
        let mut programs: Vec<Option<Program>> = (0..=u8::MAX).map(|_| None).collect();
        for (place, shipped) in programs.iter_mut().zip(&SHIPPED) {
            *place = Some(shipped.load().map_err(|error| GateError::config("program", error.to_string()))?);
        }
        for (i, ProgramConfig { number, file }) in configured.iter().enumerate() {
            let wrong = |field: &str, what: String| GateError::config(format!("program[{i}].{field}"), what);
            let place = &mut programs[usize::from(*number)];
            if let Some(there) = place {
                return Err(wrong("number", format!("{number} is {} already", there.name())));
            }
            let name = file.display();
            let metadata = std::fs::metadata(file);
            let metadata = metadata.map_err(|error| wrong("file", format!("{name}: {error}")))?;
            // Opening a pipe would wait for whoever writes to it, and a device may have no end.
            if !metadata.is_file() {
                return Err(wrong("file", format!("{name}: not a file")));
            }
            let bytes = metadata.len();
            if bytes > MAX_OBJECT as u64 {
                return Err(wrong("file", format!("{name}: {bytes} bytes are more than {MAX_OBJECT}")));
            }
            let object = std::fs::read(file).map_err(|error| wrong("file", format!("{name}: {error}")))?;
            let program = Program::load(&object, &name.to_string());
            *place = Some(program.map_err(|error| wrong("file", error.to_string()))?);
        }
        Ok(Catalog(programs.into()))
    }

    /// These, from number 0 on.
    #[cfg(test)]
    pub(crate) fn of(programs: impl IntoIterator<Item = Program>) -> Self {
        let mut places: Vec<Option<Program>> = programs.into_iter().map(Some).collect();
        places.resize_with(1 + usize::from(u8::MAX), || None);
        Catalog(places.into())
    }

    /// A program's name.
    pub fn name(&self, number: u8) -> Option<&str> {
        self.0.get(usize::from(number))?.as_ref().map(Program::name)
    }
}

/// Why a flow does not get a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is none of this number.
    Unsupported,
    /// It does not take the cookie: the flow is to be declined.
    NotTaken,
    /// All places for cookies are taken.
    Full,
}

/// One worker's programs.
pub(crate) struct Programs {
    catalog: Catalog,
    /// Those that were ever used; room for the others is there.
    cookies: Vec<Cookie>,
    free: Vec<u32>,
    most: usize,
}

impl Programs {
    /// With room for so many flows: memory that is asked for, and touched as it is used.
    ///
    /// # Errors
    /// There is not so much.
    pub(crate) fn new(catalog: Catalog, flows: u32) -> Result<Self, SizeError> {
        let most = flows as usize;
        let (mut cookies, mut free) = (Vec::new(), Vec::new());
        cookies.try_reserve_exact(most).and_then(|()| free.try_reserve_exact(most)).map_err(|source| {
            let bytes = most.saturating_mul(size_of::<Cookie>() + size_of::<u32>());
            SizeError::Memory { bytes, source: std::io::Error::other(source) }
        })?;
        Ok(Programs { catalog, cookies, free, most })
    }

    /// Flows with a program.
    pub(crate) fn len(&self) -> usize {
        self.cookies.len() - self.free.len()
    }

    /// Lets a program take a decision's cookie: in the place of the flow's own program, if it has one, which then is over.
    pub(crate) fn install(
        &mut self,
        now_ns: u64,
        expire_s: u32,
        number: u8,
        brought: &Brought,
        own: Option<Installed>,
    ) -> Result<Installed, Refused> {
        let program = self.catalog.0[usize::from(number)].as_ref().ok_or(Refused::Unsupported)?;
        let mut cookie = Cookie(*brought.padded());
        let expires_ns = now_ns.saturating_add(u64::from(expire_s) * 1_000_000_000);
        if !program.init(&Context::decision(now_ns, expires_ns, brought.bytes().len()), &mut cookie) {
            return Err(Refused::NotTaken);
        }
        let place = match own.map(|own| own.cookie).or_else(|| self.free.pop()) {
            Some(place) => {
                self.cookies[place as usize] = cookie;
                place
            }
            None if self.cookies.len() < self.most => {
                self.cookies.push(cookie);
                self.cookies.len() as u32 - 1
            }
            None => return Err(Refused::Full),
        };
        Ok(Installed { number, cookie: place })
    }

    /// The state has no program any more.
    pub(crate) fn release(&mut self, program: Installed) {
        debug_assert!(self.free.len() < self.cookies.len());
        self.free.push(program.cookie);
    }

    /// What a flow's program says of a packet of it; `None` if that means nothing.
    #[inline(always)]
    pub(crate) fn run(
        &mut self,
        program: Installed,
        now_ns: u64,
        state: &FlowState,
        ip: &[u8],
    ) -> Option<Act> {
        let Installed { number, cookie } = program;
        let cookie = self.cookies.get_mut(cookie as usize)?;
        let program = self.catalog.0.get(usize::from(number))?.as_ref()?;
        let context = Context::packet(now_ns, state.expires_ns(now_ns), ip);
        Some(match program.packet(&context, cookie) {
            Ruling::Declined => Act::Declined,
            Ruling::OverRate => Act::OverRate,
            Ruling::Granted { direct } => Act::Granted { dscp: 1, direct },
            Ruling::Renew => Act::Granted { dscp: 2, direct: false },
            Ruling::Request { dscp } => Act::Request { dscp },
            Ruling::Fault => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_is_refused_with_its_place() {
        for (number, file, wanted) in [
            (4, "/dev/null", "gatekeeper.program[0].number: 4 is tcp-services already"),
            (5, "/dev/null", "gatekeeper.program[0].file: /dev/null: not a file"),
            (5, "/nowhere/p.o", "gatekeeper.program[0].file: /nowhere/p.o: "),
        ] {
            let configured = [ProgramConfig { number, file: file.into() }];
            let error = Catalog::new(&configured).map(drop).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{error}");
        }
    }
}
