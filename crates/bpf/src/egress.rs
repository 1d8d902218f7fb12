//! A program on what leaves an interface (TC). From Linux 6.6 on a TCX link holds it: as an XDP program's link it can be pinned, and the
//! next process replaces the program in one step. On older kernels it is a filter of the `clsact` queueing discipline, which stays
//! until it is removed, and which the next process replaces in one step as well; what is pinned then is the program, as a sign
//! that the filter is ours.

use crate::object::{Object, to_io};
use crate::{BpfError, Kernel, Pins, kernel, sys};
use aya::programs::links::Link as _;
use aya::programs::tc::{
    NlOptions, SchedClassifierLink, TcAttachOptions, TcError, TcHandle, qdisc_add_clsact,
};
use aya::programs::{ProgramError, TcAttachType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// The first kernel with TCX links.
const TCX: Kernel = Kernel(6, 6);
/// Behind what is there already: the last preference but a few.
const PREFERENCE: u16 = 0xfff0;
/// Of all filters of this preference, ours.
const HANDLE: TcHandle = TcHandle::new(0, 1);

/// A program on what leaves an interface. It goes when this is dropped, unless [`Egress::leave`] is called.
#[derive(Debug)]
pub struct Egress {
    held: Held,
    /// It has taken the place of a program that was pinned there.
    is_taken_over: bool,
    pin: Option<PathBuf>,
}

#[derive(Debug)]
enum Held {
    Link(OwnedFd),
    /// On the device of this number. The kernel holds it, not this process.
    Filter(u32, Option<SchedClassifierLink>),
}

impl Egress {
    /// Puts the object's TC program `name`, which [`Object::load_egress`] has loaded, behind what is there already on the
    /// device `index`. With pins, a program that is pinned there is replaced.
    ///
    /// # Errors
    /// Rights are missing; the pinned program is on another device; on kernels before 6.6, another filter has our place.
    pub fn attach(
        object: &mut Object,
        name: &str,
        index: u32,
        pins: Option<&Pins>,
    ) -> Result<Self, BpfError> {
        let program = object.egress_fd(name)?;
        let pin = pins.map(Pins::egress);
        if let Some(path) = &pin
            && let Ok(link) = sys::pinned(path)
        {
            let info = sys::link_info(link.as_fd());
            let info = info.map_err(BpfError::system("cannot read what is known of the pinned link"))?;
            if info.interface == index {
                sys::link_update(link.as_fd(), program.as_fd())
                    .map_err(BpfError::system("cannot replace the TC program on the interface"))?;
                return Ok(Egress { held: Held::Link(link), is_taken_over: true, pin });
            }
            if info.interface != 0 {
                let text = format!(
                    "the TC program that is pinned at {0} is on another interface: remove it: rm {0}",
                    path.display()
                );
                return Err(BpfError::Refused(text));
            }
            std::fs::remove_file(path).map_err(BpfError::system("cannot remove an old pin"))?;
        }
        if TCX.missing("a link of a TC program").is_some() {
            return Self::filter(object, name, index, pins);
        }
        let link = sys::tcx_create(program.as_fd(), index)
            .map_err(|source| refused("cannot attach the TC program", source))?;
        if let Some(path) = &pin {
            sys::pin(link.as_fd(), path).map_err(BpfError::system("cannot pin the TC program's link"))?;
        }
        Ok(Egress { held: Held::Link(link), is_taken_over: false, pin })
    }

    /// The same as a filter.
    fn filter(object: &mut Object, name: &str, index: u32, pins: Option<&Pins>) -> Result<Self, BpfError> {
        const ACTION: &str = "cannot attach the TC program";
        let interface = interface(index).map_err(BpfError::system(ACTION))?;
        match qdisc_add_clsact(&interface) {
            Ok(()) | Err(TcError::AlreadyAttached) => {}
            Err(error) => {
                let source = to_io(error);
                if source.raw_os_error() != Some(libc::EEXIST) {
                    return Err(refused(ACTION, source));
                }
            }
        }
        let pin = pins.map(Pins::filter);
        let is_ours = pin.as_ref().is_some_and(|path| path.exists());
        let program = object.egress_fd(name)?;
        let program = program.as_fd();
        let tc = object.egress(name).map_err(BpfError::system(ACTION))?;
        // First the sign, then the filter: one that a killed process leaves is known for ours.
        if let Some(path) = &pin {
            if is_ours {
                std::fs::remove_file(path).map_err(BpfError::system("cannot remove an old pin"))?;
            }
            sys::pin(program, path).map_err(BpfError::system("cannot pin the TC program"))?;
        }
        let replaced = if is_ours {
            let there = ours(&interface).map_err(BpfError::system(ACTION))?;
            tc.attach_to_link(there).ok()
        } else {
            None
        };
        let is_taken_over = replaced.is_some();
        let id = match replaced {
            Some(id) => Ok(id),
            None => {
                let options = NlOptions { priority: PREFERENCE, handle: HANDLE, classid: None };
                tc.attach_with_options(&interface, TcAttachType::Egress, TcAttachOptions::Netlink(options))
            }
        };
        let link = id.and_then(|id| tc.take_link(id)).map_err(|error: ProgramError| {
            if let Some(path) = &pin {
                // What cannot be removed now can be later, by `Pins::remove`.
                let _ = std::fs::remove_file(path);
            }
            let source = to_io(error);
            if source.raw_os_error() == Some(libc::EEXIST) {
                return BpfError::Refused(format!(
                    "another filter is on what leaves {interface}, at preference {PREFERENCE}: if it is not needed, tc filter del dev \
                     {interface} egress pref {PREFERENCE}"
                ));
            }
            refused(ACTION, source)
        })?;
        Ok(Egress { held: Held::Filter(index, Some(link)), is_taken_over, pin })
    }

    /// Whether it has taken the place of a pinned program in one step: no packet has passed without one of the two.
    pub fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// Whether the device is still there.
    pub fn is_there(&self) -> bool {
        match &self.held {
            Held::Link(link) => sys::link_info(link.as_fd()).is_ok_and(|info| info.interface != 0),
            Held::Filter(index, _) => interface(*index).is_ok(),
        }
    }

    /// Lets go of it, and leaves what is pinned.
    pub fn leave(mut self) {
        if self.pin.take().is_some()
            && let Held::Filter(_, link) = &mut self.held
            && let Some(link) = link.take()
        {
            keep(link);
        }
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        if let Some(path) = self.pin.take() {
            // What cannot be removed now can be later, by `Pins::remove`.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes our filter of what leaves a device.
pub(crate) fn remove_filter(index: u32) -> io::Result<()> {
    let Ok(interface) = interface(index) else { return Ok(()) };
    match ours(&interface)?.detach().map_err(to_io) {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => Err(error),
        _ => Ok(()),
    }
}

/// Our filter of what leaves an interface, whether it is there or not.
fn ours(interface: &str) -> io::Result<SchedClassifierLink> {
    SchedClassifierLink::attached(interface, TcAttachType::Egress, PREFERENCE, HANDLE, None)
}

/// Leaves a filter where it is: dropping this would remove it.
fn keep(link: SchedClassifierLink) {
    std::mem::forget(link);
}

fn interface(index: u32) -> io::Result<String> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice::index_to_name, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(index_to_name(socket, index)?)
}

fn refused(action: &'static str, source: io::Error) -> BpfError {
    if source.raw_os_error() == Some(libc::EPERM) {
        return BpfError::Refused(kernel::lacking(action));
    }
    BpfError::System { action, source }
}
