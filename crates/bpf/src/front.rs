//! A program that stands on an interface in front of another one: what it does not decide goes on to that.

use crate::attach::{Attached, Attachment, Mode};
use crate::object::{Object, to_io};
use crate::{BpfError, Pins, ProgramFd};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The map of an object that may stand in front: at index 0 is the program that goes on with what it does not decide.
const NEXT: &str = "next";

/// An object whose program stands in front, shared by whoever works on its maps and by the port behind it.
pub struct Front {
    mode: Mode,
    pins: Option<Pins>,
    state: Mutex<State>,
}

struct State {
    /// Before the object: the program leaves the interface first.
    attachment: Option<Attachment>,
    object: Object,
    /// What is pinned stays when we go.
    stays: bool,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("mode", &self.mode).field("pins", &self.pins).finish_non_exhaustive()
    }
}

/// Nothing is the same but itself.
impl PartialEq for Front {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Front {}

impl Drop for Front {
    fn drop(&mut self) {
        if !self.state().stays {
            self.detach();
        }
    }
}

impl Front {
    /// An object that is not attached yet, where it will run, and its pins.
    pub fn new(object: Object, mode: Mode, pins: Option<Pins>) -> Self {
        Front { mode, pins, state: Mutex::new(State { attachment: None, object, stays: false }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the object's maps.
    pub fn with<T>(&self, work: impl FnOnce(&mut Object) -> T) -> T {
        work(&mut self.state().object)
    }

    /// Puts the program on the device `index`, unless it is there.
    ///
    /// # Errors
    /// As [`Attachment::attach`].
    pub fn attach(&self, interface: &str, index: u32, patience: Duration) -> Result<Attached, BpfError> {
        let mut state = self.state();
        if let Some(attachment) = &state.attachment
            && attachment.attached().index == index
        {
            return Ok(attachment.attached());
        }
        // A link to a device that is gone holds nothing any more.
        state.attachment = None;
        let pins = self.pins.as_ref();
        let attachment = Attachment::attach(&state.object, interface, index, self.mode, patience, pins)?;
        let attached = attachment.attached();
        state.attachment = Some(attachment);
        Ok(attached)
    }

    /// Where the program is.
    pub fn attached(&self) -> Option<Attached> {
        self.state().attachment.as_ref().map(Attachment::attached)
    }

    /// Takes the program off the interface and its pins away.
    pub fn detach(&self) {
        self.state().attachment = None;
        if let Some(pins) = &self.pins {
            // What cannot be removed now can be later, by `Pins::remove`.
            let _ = pins.clear();
        }
    }

    /// Lets go of what is pinned and leaves it: program and maps go on, for the next process or for [`Pins::remove`]. Without pins it leaves nothing: the
    /// program is off the interface then.
    pub fn leave(&self) {
        let mut state = self.state();
        state.stays = self.pins.is_some();
        state.attachment.take().into_iter().for_each(Attachment::leave);
    }

    /// Has `program` go on with what this one does not decide; without one the kernel does.
    ///
    /// # Errors
    /// The kernel does not let the two go together: they must be of one type.
    pub fn set_next(&self, program: Option<&ProgramFd>) -> Result<(), BpfError> {
        let mut state = self.state();
        let next = state.object.programs(NEXT);
        let set = next.and_then(|mut next| match program {
            Some(program) => next.set(0, program, 0).map_err(to_io),
            None => match next.clear_index(&0).map_err(to_io) {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                other => other,
            },
        });
        set.map_err(BpfError::system("cannot put the XDP program behind the one in front"))
    }
}
