//! Threads that see packets, and can do nothing but what that takes. Whoever takes one over by a packet has what is open already and memory; no file, no socket, no
//! program.
//!
//! Two walls, each by itself enough for files: seccomp (an allow-list of system calls; all others fail with EPERM) and Landlock (no path below which anything may
//! be done, no TCP port, no signal to others). Both hold for this thread only, and for ever. What it may ask of what is open (a netlink socket, say) it asks without capabilities: it has
//! none any more.
//!
//! Source: seccomp(2), landlock(7), capabilities(7).

/// Why a thread is not confined.
#[derive(Debug, thiserror::Error)]
#[error("this thread cannot be confined: {what}")]
pub struct ConfineError {
    what: String,
}

/// How far a thread is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confined {
    /// Whether the kernel enforces Landlock, all or most of it. Where it does not, seccomp alone holds.
    pub landlock: bool,
}

/// What a thread may do from now on; found possible once, and taken on by each of them.
#[derive(Debug, Clone)]
pub struct Confinement(());

impl Confinement {
    /// What a worker needs.
    ///
    /// # Errors
    /// A system or processor that has no such thing.
    pub fn of_workers() -> Result<Self, ConfineError> {
        imp::program().map(|_| Confinement(())).map_err(|what| ConfineError { what })
    }

    /// Confines the thread that calls; there is no way back.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take_on(&self) -> Result<Confined, ConfineError> {
        imp::take_on().map_err(|what| ConfineError { what })
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use super::Confined;
    use caps::CapSet;
    use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch,
    };
    use std::collections::BTreeMap;

    /// What is there already: read, written, waited for, closed. Memory. Time. The end. What a port has to ask of its own socket. No call in this list takes a
    /// path, makes a socket, a process or a thread, or reaches into another one. [`end`] has one more.
    const CALLS: &[i64] = &[
        // What is open.
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_pread64,
        libc::SYS_preadv,
        libc::SYS_preadv2,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_pwrite64,
        libc::SYS_pwritev,
        libc::SYS_pwritev2,
        libc::SYS_lseek,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_ftruncate,
        libc::SYS_fstat,
        libc::SYS_close,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
        libc::SYS_getsockopt,
        libc::SYS_setsockopt,
        libc::SYS_getsockname,
        libc::SYS_shutdown,
        // Waiting.
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_epoll_ctl,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_futex,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_restart_syscall,
        libc::SYS_sched_yield,
        // Time, and where we run.
        libc::SYS_clock_gettime,
        libc::SYS_clock_getres,
        libc::SYS_gettimeofday,
        libc::SYS_getcpu,
        libc::SYS_sched_getaffinity,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_getrandom,
        libc::SYS_membarrier,
        // Memory; machine code of flow programs too.
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_brk,
        // Signals to ourselves, and the end.
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_rseq,
        libc::SYS_set_robust_list,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];

    /// What only the older interface of this processor has.
    #[cfg(target_arch = "x86_64")]
    const OLDER: &[i64] = &[libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_wait, libc::SYS_time];
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: &[i64] = &[];

    /// What an interface is like now: flags, MTU, MAC address, number. Only these requests of `ioctl`, which change nothing.
    const ASKED: &[libc::c_ulong] =
        &[libc::SIOCGIFFLAGS, libc::SIOCGIFMTU, libc::SIOCGIFHWADDR, libc::SIOCGIFINDEX];

    /// For the thread that calls.
    pub(super) fn program() -> Result<BpfProgram, String> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            CALLS.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
        let asked = ASKED.iter().map(|request| {
            let second = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *request);
            SeccompRule::new(vec![second?])
        });
        let asked = asked.collect::<Result<_, _>>().map_err(|error| format!("seccomp: {error}"))?;
        rules.insert(libc::SYS_ioctl, asked);
        let ends = end().map_err(|error| format!("seccomp: {error}"))?;
        rules.extend(ends.map(|(call, rule)| (call, vec![rule])));
        let denied = SeccompAction::Errno(libc::EPERM as u32);
        let arch =
            TargetArch::try_from(std::env::consts::ARCH).map_err(|error| format!("seccomp: {error}"))?;
        let filter = SeccompFilter::new(rules, denied, SeccompAction::Allow, arch);
        filter.and_then(TryInto::try_into).map_err(|error| format!("seccomp: {error}"))
    }

    /// SIGABRT to itself, as `abort` raises it: whoever ends so is seen to have, and not by the illegal instruction that `abort` falls back on. To no other thread or
    /// process, and no other signal.
    fn end() -> Result<[(i64, SeccompRule); 2], seccompiler::BackendError> {
        let is = |argument, value: i64| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value as u64)
        };
        let (process, thread) =
            (i64::from(nix::unistd::getpid().as_raw()), i64::from(nix::unistd::gettid().as_raw()));
        let abort = i64::from(libc::SIGABRT);
        let tgkill = SeccompRule::new(vec![is(0, process)?, is(1, thread)?, is(2, abort)?])?;
        let tkill = SeccompRule::new(vec![is(0, thread)?, is(1, abort)?])?;
        Ok([(libc::SYS_tgkill, tgkill), (libc::SYS_tkill, tkill)])
    }

    pub(super) fn take_on() -> Result<Confined, String> {
        let program = program()?;
        // Landlock first: behind seccomp it could not be asked for.
        let landlock = landlock()?;
        for set in [CapSet::Ambient, CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
            caps::clear(None, set).map_err(|error| format!("capabilities: {error}"))?;
        }
        seccompiler::apply_filter(&program).map_err(|error| format!("seccomp: {error}"))?;
        Ok(Confined { landlock })
    }

    /// Handles all accesses, as far as this kernel knows them, and allows none.
    fn landlock() -> Result<bool, String> {
        const KNOWN: ABI = ABI::V6;
        let restricted = Ruleset::default()
            .handle_access(AccessFs::from_all(KNOWN))
            .and_then(|rules| rules.handle_access(AccessNet::from_all(KNOWN)))
            .and_then(|rules| rules.scope(Scope::from_all(KNOWN)))
            .and_then(Ruleset::create)
            .and_then(landlock::RulesetCreated::restrict_self);
        match restricted {
            Ok(status) => Ok(status.ruleset != RulesetStatus::NotEnforced),
            Err(error) => Err(format!("landlock: {error}")),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::Confined;

    pub(super) fn program() -> Result<(), String> {
        Err("only Linux has that".into())
    }

    pub(super) fn take_on() -> Result<Confined, String> {
        Err("only Linux has that".into())
    }
}
