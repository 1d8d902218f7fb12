//! BPF programs on network interfaces (XDP), as every part of Tidemill that has one needs them: an [`Object`] is loaded
//! from bytes, its maps are read and written, an [`Attachment`] puts it on an interface, and [`Pins`] keep program and
//! maps when the process ends, so that the next one takes over without a gap.
//!
//! ```text
//!  bytes of clang's object --load--> Object: program, maps --Attachment--> interface
//!                                      ^   |                   ^
//!                                      |   '--- pinned --------'---> /sys/fs/bpf/tidemill/NAME/
//!                                      '--------- found there by the next process
//!
//!  interface -> Front's program --decided--> drop
//!                     '--all else: next[0]--> another program (an AF_XDP port's), or the kernel
//! ```
//! **Who holds it.** A link holds the program on the interface, and a link lives as long as somebody has it: a process
//! that is killed takes its programs along. A pinned link stays, and so do pinned maps: the program goes on by what was
//! last written into them. The next process that asks for the same name takes over: it works on the same maps, and
//! replaces the program on the link in one step (`BPF_LINK_UPDATE`), so that every packet meets one of the two. A process
//! that ends in order takes its pins away, or [leaves](Front::leave) them as if it had been killed. [`Pins::remove`] takes away what is left.
//!
//! **What is redirected** to a device by another's driver is lost, unless its driver takes such frames: [`Receivers`] says whether it does. What programs may
//! still be reading is kept until [`grace`] is over.
//!
//! **What leaves** an interface is a second program's ([`Egress`], TC), loaded from the same object. Array maps can lie in memory
//! ([`Mapped`]).
//!
//! **One process at a time.** Whoever works with a name holds a lock (`flock`) on its folder: a second process is refused, in words that name the
//! first, and disturbs nothing. The kernel lets go of the lock when its process dies, however that is.
//!
//! **Layout.** Pinned maps lie in a folder that names the version of their layout; a program of another layout, or with
//! maps of other sizes, is refused in words, and nothing is changed.
//!
//! **Kernels.** Links need Linux 5.9, entries written many at a time 5.6 (older kernels get them one by one); each program
//! names what it needs itself ([`Source::minimum`]), and an error says so where the running kernel is older.

#![cfg(target_os = "linux")]

mod attach;
mod egress;
mod error;
mod front;
mod kernel;
mod mapped;
mod object;
mod pin;
mod redirect;
mod sys;
mod table;

pub use attach::{Attached, Attachment, Mode};
pub use aya::programs::ProgramFd;
pub use aya::{Pod, include_bytes_aligned, maps};
pub use egress::Egress;
pub use error::BpfError;
pub use front::Front;
pub use kernel::{Kernel, coarse_now_ns};
pub use mapped::Mapped;
pub use object::{Object, Source, Verdict, to_io};
pub use pin::{LeftBehind, Pins, Shared};
pub use redirect::{Receivers, grace};
pub use table::{Cursor, Remover, Table};
