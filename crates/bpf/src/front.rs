//! A program that stands on an interface in front of another one: what it does not decide goes on to that. One object's program may stand on several
//! interfaces, each with a place of its own among them.

use crate::attach::{Attached, Attachment, Mode};
use crate::object::{Object, to_io};
use crate::{BpfError, Pins, ProgramFd};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The map of an object that may stand in front: at the place of an interface, 0 where there is one, is the program that goes on with what it does not decide.
const NEXT: &str = "next";
/// The map of an object that stands on several interfaces: their places by the device's number.
const PLACES: &str = "ports";

/// An object whose program stands in front, shared by whoever works on its maps and by the port behind it.
pub struct Front {
    mode: Mode,
    pins: Option<Pins>,
    /// Among the interfaces that share the object, if several do.
    place: Option<u32>,
    object: Arc<Mutex<Object>>,
    state: Mutex<State>,
}

struct State {
    attachment: Option<Attachment>,
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
        Self::at(Arc::new(Mutex::new(object)), None, mode, pins)
    }

    /// The same of an object that stands on several interfaces, each with a `place`: its maps `next` and `ports` have room for all.
    pub fn beside(object: Arc<Mutex<Object>>, place: u32, mode: Mode) -> Self {
        Self::at(object, Some(place), mode, None)
    }

    fn at(object: Arc<Mutex<Object>>, place: Option<u32>, mode: Mode, pins: Option<Pins>) -> Self {
        Front { mode, pins, place, object, state: Mutex::new(State { attachment: None, stays: false }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self) -> MutexGuard<'_, Object> {
        self.object.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the object's maps.
    pub fn with<T>(&self, work: impl FnOnce(&mut Object) -> T) -> T {
        work(&mut self.object())
    }

    /// Tells the program which place a device has, or that it has none.
    fn set_place(&self, index: u32, is_there: bool) -> Result<(), BpfError> {
        let Some(place) = self.place else { return Ok(()) };
        let mut object = self.object();
        let set = object.table::<u32, u32>(PLACES).and_then(|mut places| match is_there {
            true => places.insert(&index, &place),
            false => places.remove(&index).map(drop),
        });
        set.map_err(BpfError::system("cannot tell the XDP program its interfaces"))
    }

    /// Puts the program on the device `index`, unless it is there.
    ///
    /// # Errors
    /// As [`Attachment::attach`].
    pub fn attach(&self, interface: &str, index: u32, patience: Duration) -> Result<Attached, BpfError> {
        let mut state = self.state();
        if let Some(attachment) = &state.attachment
            && attachment.attached().index == index
            && !attachment.is_gone()
        {
            return Ok(attachment.attached());
        }
        // A link to a device that is gone holds nothing any more, whatever number the next one has.
        self.let_go(&mut state);
        let pins = self.pins.as_ref();
        self.set_place(index, true)?;
        let made = Attachment::attach(&self.object(), interface, index, self.mode, patience, pins);
        let attachment = match made {
            Ok(attachment) => attachment,
            Err(error) => {
                // It is no place then; the error that led to that is the one to tell.
                let _ = self.set_place(index, false);
                return Err(error);
            }
        };
        let attached = attachment.attached();
        state.attachment = Some(attachment);
        Ok(attached)
    }

    /// Where the program is; nowhere any more when its device is gone.
    pub fn attached(&self) -> Option<Attached> {
        self.state().attachment.as_ref().filter(|there| !there.is_gone()).map(Attachment::attached)
    }

    fn let_go(&self, state: &mut State) {
        if let Some(attachment) = state.attachment.take() {
            let index = attachment.attached().index;
            drop(attachment);
            // A device that is gone, or has another program, asks for no place.
            let _ = self.set_place(index, false);
        }
    }

    /// Takes the program off the interface and its pins away.
    pub fn detach(&self) {
        self.let_go(&mut self.state());
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
        let (mut object, place) = (self.object(), self.place.unwrap_or(0));
        let next = object.programs(NEXT);
        let set = next.and_then(|mut next| match program {
            Some(program) => next.set(place, program, 0).map_err(to_io),
            None => match next.clear_index(&place).map_err(to_io) {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                other => other,
            },
        });
        set.map_err(BpfError::system("cannot put the XDP program behind the one in front"))
    }
}
