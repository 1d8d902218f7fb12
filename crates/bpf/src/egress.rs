//! A program on what leaves an interface (TC), held by a TCX link: Linux 6.6. As an XDP program's link it can be pinned, and the
//! next process replaces the program in one step.

use crate::{BpfError, Kernel, Pins, ProgramFd, kernel, sys};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// A program on what leaves an interface. It goes when this is dropped, unless [`Egress::leave`] is called.
#[derive(Debug)]
pub struct Egress {
    link: OwnedFd,
    pin: Option<PathBuf>,
}

impl Egress {
    /// Puts a program behind what is there already on the device `index`. With pins, a program that is pinned there is replaced.
    ///
    /// # Errors
    /// Rights are missing; the kernel is older than 6.6; the pinned program is on another device.
    pub fn attach(program: &ProgramFd, index: u32, pins: Option<&Pins>) -> Result<Self, BpfError> {
        let pin = pins.map(Pins::egress);
        if let Some(path) = &pin
            && let Ok(link) = sys::pinned(path)
        {
            let info = sys::link_info(link.as_fd());
            let info = info.map_err(BpfError::system("cannot read what is known of the pinned link"))?;
            if info.interface == index {
                sys::link_update(link.as_fd(), program.as_fd())
                    .map_err(BpfError::system("cannot replace the TC program on the interface"))?;
                return Ok(Egress { link, pin });
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
        let link = sys::tcx_create(program.as_fd(), index).map_err(|source| {
            if source.raw_os_error() == Some(libc::EPERM) {
                return BpfError::Refused(kernel::lacking("cannot attach the TC program"));
            }
            match Kernel(6, 6).missing("a link of a TC program") {
                Some(old) => BpfError::Refused(old),
                None => BpfError::System { action: "cannot attach the TC program", source },
            }
        })?;
        if let Some(path) = &pin {
            sys::pin(link.as_fd(), path).map_err(BpfError::system("cannot pin the TC program's link"))?;
        }
        Ok(Egress { link, pin })
    }

    /// Whether the device is still there.
    pub fn is_there(&self) -> bool {
        sys::link_info(self.link.as_fd()).is_ok_and(|info| info.interface != 0)
    }

    /// Lets go of it, and leaves what is pinned.
    pub fn leave(mut self) {
        self.pin = None;
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
