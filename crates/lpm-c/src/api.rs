//! Longest-prefix matching, IPv4 and IPv6: tables that one thread changes while others look addresses up, without locks.
//!
//! A table is built from an array of routes, each a prefix and a label. Labels are numbers of yours, next hops say; 0 is "no route".
//! Every thread that looks up has a reader of its own, and calls `tm_lpm*_quiescent` between bursts: that is how a table learns
//! what nobody looks at any more. A reader that will not come by for a while goes offline before. Lookups never wait, for nobody.
//!
//! Who has many tables makes them in a domain (`tm_lpm_domain_create`, `tm_lpm4_create_in`): every thread then has one worker for all of
//! them (`tm_lpm_worker_create`, `tm_lpm4_lookup_by`), and says once that it is between bursts. Tables of the structure "shared" store
//! what is alike in them once, as the tables of VRFs mostly are.
//!
//! Contract of every function: pointers are valid for what their type says, for the time of the call; handles come from
//! `tm_lpm*_create*` and `tm_lpm*_reader_create` and are freed once, when no thread uses them. A table and a domain may be used by several threads at
//! a time, a reader or a worker by one. Readers may outlive their table: they go on with its last state. A domain may be freed before what was
//! made in it. Arrays may be NULL if they are empty.
//! A function that fails returns a code other than `TM_LPM_OK`, changes nothing, and says why in `tm_lpm_last_error`.
//!
//! This module is one of the named homes of `unsafe`.

// The contract is the same for all, and stands above.
#![allow(clippy::missing_safety_doc)]

use crate::guard::{Error, apart, exclusive, give, guard, last, shared, slice, slice_mut, take, text};
use crate::handle::{Control, Group, Member, Reader};
use std::ffi::c_char;
use tidemill_lpm::{Fib, Label};

/// All went well.
pub const TM_LPM_OK: i32 = 0;
/// A pointer is NULL that must not be.
pub const TM_LPM_NULL: i32 = 1;
/// A pointer is not aligned, an array longer than memory, a string not UTF-8, or keys and labels overlap.
pub const TM_LPM_POINTER: i32 = 2;
/// A prefix is too long, or has host bits set.
pub const TM_LPM_PREFIX: i32 = 3;
/// No lookup structure of this family has this name.
pub const TM_LPM_ALGORITHM: i32 = 4;
/// The structure cannot hold the table, or there is no memory.
pub const TM_LPM_BUILD: i32 = 5;
/// The reader, or the worker, is offline.
pub const TM_LPM_OFFLINE: i32 = 6;
/// An error of ours. The table that it happened to cannot be changed any more; its readers go on.
pub const TM_LPM_PANIC: i32 = 7;
/// The table and the worker are of different domains.
pub const TM_LPM_DOMAIN: i32 = 8;

/// What the last function that failed in this thread had to say; valid until the next one fails. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tm_lpm_last_error() -> *const c_char {
    last()
}

/// A route of IPv4.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Route4 {
    /// Address as a number: 10.0.0.1 is 0x0a000001.
    pub addr: u32,
    /// Length of the prefix, 0 to 32.
    pub len: u8,
    /// Label.
    pub label: u32,
}

/// A route of IPv6.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Route6 {
    /// Address in network order.
    pub addr: [u8; 16],
    /// Length of the prefix, 0 to 128.
    pub len: u8,
    /// Label.
    pub label: u32,
}

/// Tables of both families that one worker of each thread looks into.
pub struct Domain(Group);

/// One thread's way to look into all tables of a domain.
pub struct Worker(Member);

/// Makes a domain. It goes to `*domain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm_domain_create(domain: *mut *mut Domain) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { give(domain, Domain(Group::new()), "domain") })
}

/// Frees a domain; its tables and workers go on. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm_domain_free(domain: *mut Domain) {
    // SAFETY: the contract above.
    unsafe { take(domain) }
}

/// Makes a worker, online, for one thread. It goes to `*worker`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm_worker_create(domain: *const Domain, worker: *mut *mut Worker) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { give(worker, Worker(shared(domain, "domain")?.0.member()), "worker") })
}

/// Frees a worker. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm_worker_free(worker: *mut Worker) {
    // SAFETY: the contract above.
    unsafe { take(worker) }
}

/// Says that the thread is between two bursts. Call it often: what tables have replaced is kept until all workers have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm_worker_quiescent(worker: *mut Worker) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { exclusive(worker, "worker").map(|worker| worker.0.quiescent()) })
}

/// Says that the thread will not look up for a while: nobody waits for it until `tm_lpm_worker_online`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm_worker_offline(worker: *mut Worker) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { exclusive(worker, "worker").map(|worker| worker.0.offline()) })
}

/// Says that the thread will look up again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm_worker_online(worker: *mut Worker) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { exclusive(worker, "worker").map(|worker| worker.0.online_again()) })
}

/// Keys that are turned into numbers at once.
const CHUNK: usize = 256;

fn number(addr: [u8; 16]) -> u128 {
    u128::from_be_bytes(addr)
}

fn lookup6(fib: &dyn Fib<u128>, keys: &[[u8; 16]], labels: &mut [Label]) {
    let mut numbers = [0; CHUNK];
    for (keys, labels) in keys.chunks(CHUNK).zip(labels.chunks_mut(CHUNK)) {
        numbers.iter_mut().zip(keys).for_each(|(to, &key)| *to = number(key));
        fib.lookup_batch(&numbers[..keys.len()], labels);
    }
}

/// Writes a string with its NUL, cut to the room that there is.
///
/// # Safety
/// `room` bytes at `to`.
unsafe fn write(to: *mut c_char, room: usize, text: &str) -> Result<(), Error> {
    // SAFETY: what the caller vouches for; a `c_char` is a byte.
    let to = unsafe { slice_mut(to.cast::<u8>(), room, "to") }?;
    let Some(most) = to.len().checked_sub(1) else { return Ok(()) };
    let len = text.len().min(most);
    to[..len].copy_from_slice(&text.as_bytes()[..len]);
    to[len] = 0;
    Ok(())
}

/// A table of IPv4.
pub struct Table4(Control<u32>);

/// One thread's way to look into a table of IPv4.
pub struct Reader4(Reader<u32>);

/// Makes a table of `count` routes; of several with one prefix the last counts. `algorithm` names the lookup structure; NULL is
/// "auto", which chooses. The table goes to `*table`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_create(
    algorithm: *const c_char,
    routes: *const Route4,
    count: usize,
    table: *mut *mut Table4,
) -> i32 {
    guard(|| {
        // SAFETY: the contract above.
        let (algorithm, routes) = unsafe { (text(algorithm, "algorithm")?, slice(routes, count, "routes")?) };
        let routes = routes.iter().map(|route| (route.addr, route.len, route.label));
        let control = Control::new(algorithm, routes)?;
        // SAFETY: the contract above.
        unsafe { give(table, Table4(control), "table") }
    })
}

/// The same in a domain, where `algorithm` may also be "shared": what such tables of the domain have in common is stored once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_create_in(
    domain: *const Domain,
    algorithm: *const c_char,
    routes: *const Route4,
    count: usize,
    table: *mut *mut Table4,
) -> i32 {
    guard(|| {
        // SAFETY: the contract above.
        let (algorithm, routes) = unsafe { (text(algorithm, "algorithm")?, slice(routes, count, "routes")?) };
        let routes = routes.iter().map(|route| (route.addr, route.len, route.label));
        // SAFETY: the contract above.
        let control = Control::new_in(&unsafe { shared(domain, "domain") }?.0, algorithm, routes)?;
        // SAFETY: the contract above.
        unsafe { give(table, Table4(control), "table") }
    })
}

/// Frees a table. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_free(table: *mut Table4) {
    // SAFETY: the contract above.
    unsafe { take(table) }
}

/// Notes that a route is to be added, or to have another label. Nobody sees it before `tm_lpm4_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_add(table: *const Table4, addr: u32, len: u8, label: u32) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { shared(table, "table")?.0.announce(addr, len, label) })
}

/// Notes that a route is to be removed; one that is not there will do no harm. Nobody sees it before `tm_lpm4_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_withdraw(table: *const Table4, addr: u32, len: u8) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { shared(table, "table")?.0.withdraw(addr, len) })
}

/// Applies what was noted, in its order, while readers go on: each of their answers is the old one or the new one. The number of prefixes
/// that are different now goes to `*changed` if that is not NULL. If the table cannot hold the changes, they are dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_commit(table: *const Table4, changed: *mut usize) -> i32 {
    guard(|| {
        // SAFETY: the contract above.
        let (table, to) = unsafe { (shared(table, "table")?, changed.as_mut()) };
        let changed = table.0.commit()?;
        to.into_iter().for_each(|to| *to = changed);
        Ok(())
    })
}

/// What the table is: its prefixes, the bytes that lookups can touch, and the name of its structure, cut to `room` bytes with a NUL at the
/// end. Pointers that are NULL get nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_describe(
    table: *const Table4,
    prefixes: *mut usize,
    bytes: *mut usize,
    name: *mut c_char,
    room: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the contract above.
        let table = &unsafe { shared(table, "table") }?.0;
        let (has_prefixes, has_bytes) = (table.prefixes()?, table.bytes()?);
        // SAFETY: the contract above.
        unsafe {
            prefixes.as_mut().into_iter().for_each(|to| *to = has_prefixes);
            bytes.as_mut().into_iter().for_each(|to| *to = has_bytes);
            if name.is_null() { Ok(()) } else { write(name, room, &table.name()?) }
        }
    })
}

/// Makes a reader, online, for one thread. It goes to `*reader`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_reader_create(table: *const Table4, reader: *mut *mut Reader4) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { give(reader, Reader4(shared(table, "table")?.0.reader()), "reader") })
}

/// Frees a reader. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_reader_free(reader: *mut Reader4) {
    // SAFETY: the contract above.
    unsafe { take(reader) }
}

/// The labels of `count` addresses (as numbers): `labels[i]` answers `keys[i]`. Bursts of 64 to 256 are quickest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_lookup(
    reader: *const Reader4,
    keys: *const u32,
    labels: *mut u32,
    count: usize,
) -> i32 {
    guard(|| {
        apart(keys, labels, count)?;
        // SAFETY: the contract above; a label is a `u32` and nothing else. The arrays do not overlap, as just checked.
        let (reader, keys, labels) = unsafe {
            let labels = slice_mut(labels.cast::<Label>(), count, "labels")?;
            (shared(reader, "reader")?, slice(keys, count, "keys")?, labels)
        };
        let fib: &dyn Fib<u32> = reader.0.fib()?;
        fib.lookup_batch(keys, labels);
        Ok(())
    })
}

/// The same by a worker of the table's domain. The table must not be freed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_lookup_by(
    table: *const Table4,
    worker: *const Worker,
    keys: *const u32,
    labels: *mut u32,
    count: usize,
) -> i32 {
    guard(|| {
        apart(keys, labels, count)?;
        // SAFETY: the contract above; a label is a `u32` and nothing else. The arrays do not overlap, as just checked.
        let (table, worker, keys, labels) = unsafe {
            let labels = slice_mut(labels.cast::<Label>(), count, "labels")?;
            (shared(table, "table")?, shared(worker, "worker")?, slice(keys, count, "keys")?, labels)
        };
        let fib: &dyn Fib<u32> = table.0.fib(&worker.0)?;
        fib.lookup_batch(keys, labels);
        Ok(())
    })
}

/// Says that the thread is between two bursts. Call it often: what a table has replaced is kept until all its readers have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_quiescent(reader: *mut Reader4) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { exclusive(reader, "reader").map(|reader| reader.0.quiescent()) })
}

/// Says that the thread will not look up for a while: nobody waits for it until `tm_lpm4_online`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_offline(reader: *mut Reader4) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { exclusive(reader, "reader").map(|reader| reader.0.offline()) })
}

/// Says that the thread will look up again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm4_online(reader: *mut Reader4) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { exclusive(reader, "reader").map(|reader| reader.0.online()) })
}

/// A table of IPv6.
pub struct Table6(Control<u128>);

/// One thread's way to look into a table of IPv6.
pub struct Reader6(Reader<u128>);

/// Makes a table of `count` routes; of several with one prefix the last counts. `algorithm` names the lookup structure; NULL is
/// "auto", which chooses. The table goes to `*table`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_create(
    algorithm: *const c_char,
    routes: *const Route6,
    count: usize,
    table: *mut *mut Table6,
) -> i32 {
    guard(|| {
        // SAFETY: the contract above.
        let (algorithm, routes) = unsafe { (text(algorithm, "algorithm")?, slice(routes, count, "routes")?) };
        let routes = routes.iter().map(|route| (number(route.addr), route.len, route.label));
        let control = Control::new(algorithm, routes)?;
        // SAFETY: the contract above.
        unsafe { give(table, Table6(control), "table") }
    })
}

/// The same in a domain, where `algorithm` may also be "shared": what such tables of the domain have in common is stored once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_create_in(
    domain: *const Domain,
    algorithm: *const c_char,
    routes: *const Route6,
    count: usize,
    table: *mut *mut Table6,
) -> i32 {
    guard(|| {
        // SAFETY: the contract above.
        let (algorithm, routes) = unsafe { (text(algorithm, "algorithm")?, slice(routes, count, "routes")?) };
        let routes = routes.iter().map(|route| (number(route.addr), route.len, route.label));
        // SAFETY: the contract above.
        let control = Control::new_in(&unsafe { shared(domain, "domain") }?.0, algorithm, routes)?;
        // SAFETY: the contract above.
        unsafe { give(table, Table6(control), "table") }
    })
}

/// Frees a table. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_free(table: *mut Table6) {
    // SAFETY: the contract above.
    unsafe { take(table) }
}

/// Notes that a route is to be added, or to have another label. Nobody sees it before `tm_lpm6_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_add(
    table: *const Table6,
    addr: *const [u8; 16],
    len: u8,
    label: u32,
) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { shared(table, "table")?.0.announce(number(*shared(addr, "addr")?), len, label) })
}

/// Notes that a route is to be removed; one that is not there will do no harm. Nobody sees it before `tm_lpm6_commit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_withdraw(table: *const Table6, addr: *const [u8; 16], len: u8) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { shared(table, "table")?.0.withdraw(number(*shared(addr, "addr")?), len) })
}

/// Applies what was noted, in its order, while readers go on: each of their answers is the old one or the new one. The number of prefixes
/// that are different now goes to `*changed` if that is not NULL. If the table cannot hold the changes, they are dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_commit(table: *const Table6, changed: *mut usize) -> i32 {
    guard(|| {
        // SAFETY: the contract above.
        let (table, to) = unsafe { (shared(table, "table")?, changed.as_mut()) };
        let changed = table.0.commit()?;
        to.into_iter().for_each(|to| *to = changed);
        Ok(())
    })
}

/// What the table is: its prefixes, the bytes that lookups can touch, and the name of its structure, cut to `room` bytes with a NUL at the
/// end. Pointers that are NULL get nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_describe(
    table: *const Table6,
    prefixes: *mut usize,
    bytes: *mut usize,
    name: *mut c_char,
    room: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the contract above.
        let table = &unsafe { shared(table, "table") }?.0;
        let (has_prefixes, has_bytes) = (table.prefixes()?, table.bytes()?);
        // SAFETY: the contract above.
        unsafe {
            prefixes.as_mut().into_iter().for_each(|to| *to = has_prefixes);
            bytes.as_mut().into_iter().for_each(|to| *to = has_bytes);
            if name.is_null() { Ok(()) } else { write(name, room, &table.name()?) }
        }
    })
}

/// Makes a reader, online, for one thread. It goes to `*reader`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_reader_create(table: *const Table6, reader: *mut *mut Reader6) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { give(reader, Reader6(shared(table, "table")?.0.reader()), "reader") })
}

/// Frees a reader. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_reader_free(reader: *mut Reader6) {
    // SAFETY: the contract above.
    unsafe { take(reader) }
}

/// The labels of `count` addresses (in network order): `labels[i]` answers `keys[i]`. Bursts of 64 to 256 are quickest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_lookup(
    reader: *const Reader6,
    keys: *const [u8; 16],
    labels: *mut u32,
    count: usize,
) -> i32 {
    guard(|| {
        apart(keys, labels, count)?;
        // SAFETY: the contract above; a label is a `u32` and nothing else. The arrays do not overlap, as just checked.
        let (reader, keys, labels) = unsafe {
            let labels = slice_mut(labels.cast::<Label>(), count, "labels")?;
            (shared(reader, "reader")?, slice(keys, count, "keys")?, labels)
        };
        lookup6(reader.0.fib()?, keys, labels);
        Ok(())
    })
}

/// The same by a worker of the table's domain. The table must not be freed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_lookup_by(
    table: *const Table6,
    worker: *const Worker,
    keys: *const [u8; 16],
    labels: *mut u32,
    count: usize,
) -> i32 {
    guard(|| {
        apart(keys, labels, count)?;
        // SAFETY: the contract above; a label is a `u32` and nothing else. The arrays do not overlap, as just checked.
        let (table, worker, keys, labels) = unsafe {
            let labels = slice_mut(labels.cast::<Label>(), count, "labels")?;
            (shared(table, "table")?, shared(worker, "worker")?, slice(keys, count, "keys")?, labels)
        };
        let fib: &dyn Fib<u128> = table.0.fib(&worker.0)?;
        lookup6(fib, keys, labels);
        Ok(())
    })
}

/// Says that the thread is between two bursts. Call it often: what a table has replaced is kept until all its readers have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_quiescent(reader: *mut Reader6) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { exclusive(reader, "reader").map(|reader| reader.0.quiescent()) })
}

/// Says that the thread will not look up for a while: nobody waits for it until `tm_lpm6_online`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_offline(reader: *mut Reader6) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { exclusive(reader, "reader").map(|reader| reader.0.offline()) })
}

/// Says that the thread will look up again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tm_lpm6_online(reader: *mut Reader6) -> i32 {
    // SAFETY: the contract above.
    guard(|| unsafe { exclusive(reader, "reader").map(|reader| reader.0.online()) })
}
