//! A program on an interface, held by a link.

use crate::object::Object;
use crate::{BpfError, Kernel, Pins, kernel, sys};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where in the kernel a program runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver if that can, else behind it.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// Behind the driver: works with any, and is slower.
    Generic,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::Native => "native",
            Mode::Generic => "generic",
        }
    }

    fn tries(self) -> &'static [Mode] {
        match self {
            Mode::Auto => &[Mode::Native, Mode::Generic],
            Mode::Native => &[Mode::Native],
            Mode::Generic => &[Mode::Generic],
        }
    }
}

/// Where a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// The device's number.
    pub index: u32,
    /// In the driver, not behind it.
    pub native: bool,
}

/// A program on an interface. It leaves when this is dropped, and when the process dies; if it is pinned, only when
/// this is dropped.
#[derive(Debug)]
pub struct Attachment {
    link: OwnedFd,
    attached: Attached,
    /// Our program's number.
    program: u32,
    /// It has taken the place of a program that was pinned there.
    is_taken_over: bool,
    pin: Option<PathBuf>,
}

impl Attachment {
    /// Puts an object's program on the device `index`, which is called `interface`. Another program that is there is
    /// waited for. With pins, a program that is pinned there is replaced in one step, and the link is pinned.
    ///
    /// # Errors
    /// Another program is there and stays; the driver lacks the mode; the pinned program is on another device; rights
    /// are missing; the kernel is too old.
    pub fn attach(
        object: &Object,
        interface: &str,
        index: u32,
        mode: Mode,
        patience: Duration,
        pins: Option<&Pins>,
    ) -> Result<Self, BpfError> {
        if let Some(pins) = pins
            && let Some(attachment) = Self::take_over(object, interface, index, mode, pins)?
        {
            return Ok(attachment);
        }
        let (link, native) = create(object, interface, index, mode, patience)?;
        let attached = Attached { index, native };
        let program = object.program_id()?;
        let mut attachment = Attachment { link, attached, program, is_taken_over: false, pin: None };
        if let Some(pins) = pins {
            let path = pins.link(if native { Mode::Native } else { Mode::Generic });
            sys::pin(attachment.link.as_fd(), &path)
                .map_err(BpfError::system("cannot pin the XDP program's link"))?;
            attachment.pin = Some(path);
        }
        Ok(attachment)
    }

    /// Replaces the program of a pinned link, if there is one whose device is still there.
    fn take_over(
        object: &Object,
        interface: &str,
        index: u32,
        mode: Mode,
        pins: &Pins,
    ) -> Result<Option<Self>, BpfError> {
        for way in [Mode::Native, Mode::Generic] {
            let path = pins.link(way);
            let Ok(link) = sys::pinned(&path) else { continue };
            let info = sys::link_info(link.as_fd())
                .map_err(BpfError::system("cannot read what is known of the pinned link"))?;
            if info.interface == 0 {
                // Its device is gone, and so is what it held.
                std::fs::remove_file(&path).map_err(BpfError::system("cannot remove an old pin"))?;
                continue;
            }
            let refused = if info.interface != index {
                Some(format!("on another interface than {interface}, with the number {}", info.interface))
            } else if mode != Mode::Auto && mode != way {
                Some(format!("in {} mode, not {}", way.name(), mode.name()))
            } else {
                None
            };
            if let Some(what) = refused {
                let text = format!(
                    "the XDP program that is pinned at {0} is {what}: remove it: rm {0}",
                    path.display()
                );
                return Err(BpfError::Refused(text));
            }
            sys::link_update(link.as_fd(), object.program_fd()?.as_fd())
                .map_err(BpfError::system("cannot replace the XDP program on the interface"))?;
            let attached = Attached { index, native: way == Mode::Native };
            let program = object.program_id()?;
            return Ok(Some(Attachment { link, attached, program, is_taken_over: true, pin: Some(path) }));
        }
        Ok(None)
    }

    /// Where it is.
    pub fn attached(&self) -> Attached {
        self.attached
    }

    /// Whether it has taken the place of a pinned program in one step: no packet has passed without one of the two.
    pub fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// Lets go of it, and leaves what is pinned.
    pub fn leave(mut self) {
        self.pin = None;
    }

    /// Whether the device is still there, and its program still this one.
    pub fn is_ours(&self) -> bool {
        sys::link_info(self.link.as_fd())
            .is_ok_and(|info| info.program == self.program && info.interface != 0)
    }

    /// Whether it holds nothing any more: its device is gone, also where another one has its number since. What cannot be asked is taken for there.
    pub fn is_gone(&self) -> bool {
        sys::link_info(self.link.as_fd()).is_ok_and(|info| info.interface == 0)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Some(path) = self.pin.take() {
            // What cannot be removed now can be later, by `Pins::remove`.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn create(
    object: &Object,
    interface: &str,
    index: u32,
    mode: Mode,
    patience: Duration,
) -> Result<(OwnedFd, bool), BpfError> {
    let program = object.program_fd()?;
    let mut last = io::Error::from(io::ErrorKind::Unsupported);
    for way in mode.tries() {
        let (started, native) = (Instant::now(), *way == Mode::Native);
        loop {
            match sys::link_create(program.as_fd(), index, native) {
                Ok(link) => return Ok((link, native)),
                // The link of a process that has just ended goes a moment later.
                Err(error) if is_taken(&error) && started.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) if is_taken(&error) => {
                    let text = format!(
                        "another XDP program is on {interface}: remove it, if it is not needed (ip link set dev {interface} xdp off; a \
                         program held by a link goes with the process that made it: bpftool link)"
                    );
                    return Err(BpfError::Refused(text));
                }
                Err(error) => {
                    last = error;
                    break;
                }
            }
        }
    }
    if last.raw_os_error() == Some(libc::EPERM) {
        return Err(BpfError::Refused(kernel::lacking("cannot attach the XDP program")));
    }
    if let Some(old) = Kernel::LINKS.missing("a link of an XDP program") {
        return Err(BpfError::Refused(old));
    }
    let action = match mode {
        Mode::Native => {
            "the driver takes no XDP program here (its MTU may be too large for one; mode = \"generic\" works with any)"
        }
        Mode::Auto | Mode::Generic => "cannot attach the XDP program",
    };
    Err(BpfError::System { action, source: last })
}

/// Whether another program is there.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}
