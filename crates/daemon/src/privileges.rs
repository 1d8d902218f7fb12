//! What a process gives up when it has what it needs: the user, and capabilities. Nothing of it can be had back.
//!
//! ```text
//! root, or capabilities of systemd's AmbientCapabilities=
//!   forgo_new()                      of all threads that begin later: no program gives them more, whoever owns it
//!   ports, sockets, tables, huge pages
//!   give_up(user, group, keep)       uid and gid of all threads; capabilities of this one and of those that it starts: where the user stays, threads that run keep theirs
//! ```
//! Source: capabilities(7), setresuid(2).

use std::path::Path;

/// A capability that may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Packet sockets: CAP_NET_RAW.
    NetRaw,
    /// Interfaces, queues, XDP: CAP_NET_ADMIN.
    NetAdmin,
    /// Programs in the kernel: CAP_BPF.
    Bpf,
}

/// What was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// The user from now on, if it was changed.
    pub user: Option<String>,
    /// Names of the capabilities that are left.
    pub kept: Vec<String>,
    /// Threads that ran before and have more: without another user they alone could give it up.
    pub others: usize,
}

impl std::fmt::Display for GivenUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "user {user}, ")?;
        }
        match &self.kept[..] {
            [] => f.write_str("no capabilities")?,
            kept => write!(f, "of the capabilities only {}", kept.join(", "))?,
        }
        match self.others {
            0 => Ok(()),
            1 => f.write_str("; one thread that ran before has more"),
            others => write!(f, "; {others} threads that ran before have more"),
        }
    }
}

/// Why not all was given up that was to be. Some of it may have been: end the process.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// No such account.
    #[error("run.{key} = {name:?}: there is no such {key}: useradd --system {name}")]
    Unknown {
        /// `user` or `group`.
        key: &'static str,
        /// The name.
        name: String,
    },
    /// Only root can become somebody else.
    #[error(
        "run.user = {0:?}: only root can become another user: start as root, or leave it to systemd (User=)"
    )]
    NotRoot(String),
    /// The system refuses.
    #[error("cannot give up privileges: {what}: {why}")]
    Refused {
        /// What.
        what: &'static str,
        /// The system's reason.
        why: String,
    },
    /// Only Linux has capabilities.
    #[error("run.user: only on Linux")]
    NotHere,
}

/// Becomes `user` and `group` (the user's own, without one), and keeps of the capabilities those of `keep` that are there. To be called by the thread that starts the workers, when
/// no other needs any: threads that run already lose theirs only with a change of the user.
///
/// # Errors
/// [`PrivilegeError`].
pub fn give_up(user: Option<&str>, group: Option<&str>, keep: &[Keep]) -> Result<GivenUp, PrivilegeError> {
    imp::give_up(user, group, keep)
}

/// From now on no program that this thread starts, nor one that a thread starts which it starts, has more rights than it has: set-user-ID bits and capabilities of files
/// mean nothing. For a process that is to give rights up later, before its first thread listens to strangers.
///
/// # Errors
/// [`PrivilegeError::Refused`].
pub fn forgo_new() -> Result<(), PrivilegeError> {
    imp::forgo_new()
}

/// Gives a file to `user` and `group` (the user's own, without one): one that [`give_up`] would leave with root. To be called before that.
///
/// # Errors
/// [`PrivilegeError`].
pub fn hand_over(file: &Path, user: &str, group: Option<&str>) -> Result<(), PrivilegeError> {
    imp::hand_over(file, user, group)
}

/// Whether this is a process with capabilities that is not root's: a service manager has given it those (systemd's User= and AmbientCapabilities=).
pub fn is_given_some() -> bool {
    imp::is_given_some()
}

#[cfg(target_os = "linux")]
mod imp {
    use super::{GivenUp, Keep, Path, PrivilegeError};
    use caps::{CapSet, Capability, CapsHashSet};
    use nix::unistd::{Gid, Group, Uid, User, geteuid, setgroups, setresgid, setresuid};

    fn refused(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> PrivilegeError {
        move |why| PrivilegeError::Refused { what, why: why.to_string() }
    }

    fn capability(keep: Keep) -> Capability {
        match keep {
            Keep::NetRaw => Capability::CAP_NET_RAW,
            Keep::NetAdmin => Capability::CAP_NET_ADMIN,
            Keep::Bpf => Capability::CAP_BPF,
        }
    }

    /// Numbers of an account's user and group.
    fn account(user: &str, group: Option<&str>) -> Result<(Uid, Gid), PrivilegeError> {
        let lookup = refused("the accounts cannot be read");
        let unknown = |key, name: &str| PrivilegeError::Unknown { key, name: name.to_owned() };
        let found = User::from_name(user).map_err(|error| lookup(&error))?;
        let found = found.ok_or_else(|| unknown("user", user))?;
        let gid = match group {
            None => found.gid,
            Some(group) => {
                let known = Group::from_name(group).map_err(|error| lookup(&error))?;
                known.ok_or_else(|| unknown("group", group))?.gid
            }
        };
        Ok((found.uid, gid))
    }

    pub(super) fn hand_over(file: &Path, user: &str, group: Option<&str>) -> Result<(), PrivilegeError> {
        if !geteuid().is_root() {
            return Err(PrivilegeError::NotRoot(user.to_owned()));
        }
        let (uid, gid) = account(user, group)?;
        std::os::unix::fs::lchown(file, Some(uid.as_raw()), Some(gid.as_raw()))
            .map_err(|error| refused("a file")(&format!("{}: {error}", file.display())))
    }

    pub(super) fn forgo_new() -> Result<(), PrivilegeError> {
        nix::sys::prctl::set_no_new_privs().map_err(|error| refused("no new privileges")(&error))
    }

    pub(super) fn is_given_some() -> bool {
        !geteuid().is_root() && caps::read(None, CapSet::Permitted).is_ok_and(|there| !there.is_empty())
    }

    /// Threads of this process that have more than these.
    fn others(kept: &CapsHashSet) -> usize {
        let kept = kept.iter().fold(0, |all, capability| all | capability.bitmask());
        let has_more = |status: &String| {
            let of = |line: &str| u64::from_str_radix(line.strip_prefix("CapPrm:")?.trim(), 16).ok();
            status.lines().find_map(of).is_some_and(|there| there & !kept != 0)
        };
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let status = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("status")).ok();
        threads.filter_map(status).filter(has_more).count()
    }

    pub(super) fn give_up(
        user: Option<&str>,
        group: Option<&str>,
        keep: &[Keep],
    ) -> Result<GivenUp, PrivilegeError> {
        let account = user.map(|user| account(user, group)).transpose()?;
        let has = |set| caps::read(None, set).map_err(|error| refused("capabilities")(&error));
        let there = has(CapSet::Permitted)?;
        let kept: CapsHashSet = keep
            .iter()
            .map(|keep| capability(*keep))
            .filter(|capability| there.contains(capability))
            .collect();
        // What no program that is started can have, whoever owns it. Without this right there is nothing to be gained that way either: no new privileges.
        if has(CapSet::Effective)?.contains(&Capability::CAP_SETPCAP) {
            for other in has(CapSet::Bounding)?.difference(&kept) {
                caps::drop(None, CapSet::Bounding, *other)
                    .map_err(|error| refused("the bounding set")(&error))?;
            }
        }
        if let (Some((uid, gid)), Some(user)) = (account, user) {
            if !geteuid().is_root() {
                return Err(PrivilegeError::NotRoot(user.to_owned()));
            }
            // This thread's capabilities outlive the change of the user; those of all others do not.
            caps::securebits::set_keepcaps(true).map_err(|error| refused("keepcaps")(&error))?;
            setgroups(&[gid]).map_err(|error| refused("setgroups")(&error))?;
            setresgid(gid, gid, gid).map_err(|error| refused("setresgid")(&error))?;
            setresuid(uid, uid, uid).map_err(|error| refused("setresuid")(&error))?;
            caps::securebits::set_keepcaps(false).map_err(|error| refused("keepcaps")(&error))?;
        }
        caps::clear(None, CapSet::Ambient).map_err(|error| refused("the ambient set")(&error))?;
        let none = CapsHashSet::new();
        for (set, wanted) in
            [(CapSet::Effective, &kept), (CapSet::Permitted, &kept), (CapSet::Inheritable, &none)]
        {
            caps::set(None, set, wanted).map_err(|error| refused("capabilities")(&error))?;
        }
        let others = others(&kept);
        let mut kept: Vec<String> = kept.into_iter().map(|capability| capability.to_string()).collect();
        kept.sort();
        Ok(GivenUp { user: user.map(str::to_owned), kept, others })
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::{GivenUp, Keep, Path, PrivilegeError};

    pub(super) fn hand_over(_: &Path, _: &str, _: Option<&str>) -> Result<(), PrivilegeError> {
        Err(PrivilegeError::NotHere)
    }

    pub(super) fn forgo_new() -> Result<(), PrivilegeError> {
        Err(PrivilegeError::NotHere)
    }

    pub(super) fn is_given_some() -> bool {
        false
    }

    pub(super) fn give_up(
        _user: Option<&str>,
        _group: Option<&str>,
        _keep: &[Keep],
    ) -> Result<GivenUp, PrivilegeError> {
        Err(PrivilegeError::NotHere)
    }
}
