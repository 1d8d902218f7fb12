//! The border: errors and panics become status codes, pointers become references or an error.
//!
//! This module is one of the named homes of `unsafe`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::api::{TM_LPM_NULL, TM_LPM_OK, TM_LPM_PANIC, TM_LPM_POINTER};

/// What goes back to C: a code, and a text for [`last`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Error {
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl Error {
    pub(crate) fn new(code: i32, text: impl ToString) -> Self {
        Error { code, text: text.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Does what was asked for; the status, and the text kept if it is not [`TM_LPM_OK`].
pub(crate) fn guard(what: impl FnOnce() -> Result<(), Error>) -> i32 {
    // What a panic may have left half done is behind a lock, which is poisoned then, or a reader, which only reads.
    let done = catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(Error::new(TM_LPM_PANIC, format!("internal error: {text}")))
    });
    match done {
        Ok(()) => TM_LPM_OK,
        Err(Error { code, text }) => {
            // No text of ours has a NUL inside; one of a caller's ends before it.
            let bytes = text.bytes().take_while(|&byte| byte != 0).collect::<Vec<u8>>();
            LAST.with_borrow_mut(|last| *last = CString::new(bytes).unwrap_or_default());
            code
        }
    }
}

/// The last error of this thread.
pub(crate) fn last() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

fn null(what: &str) -> Error {
    Error::new(TM_LPM_NULL, format!("{what} is NULL"))
}

/// # Safety
/// NULL, or a `T` that lives and is not written to while the result is used.
pub(crate) unsafe fn shared<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Error> {
    // SAFETY: what the caller vouches for.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// # Safety
/// NULL, or a `T` that lives and that nobody else uses while the result is used.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Error> {
    // SAFETY: what the caller vouches for.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(what))
}

/// An array may be NULL if it is empty; it must be aligned and no longer than memory can be.
fn checked<T>(pointer: *const T, count: usize, what: &str) -> Result<(), Error> {
    if pointer.is_null() {
        return Err(null(what));
    }
    if !pointer.is_aligned() {
        return Err(Error::new(
            TM_LPM_POINTER,
            format!("{what} is not aligned to {} bytes", align_of::<T>()),
        ));
    }
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Error::new(TM_LPM_POINTER, format!("{what}: {count} elements are more than memory holds"))),
    }
}

/// # Safety
/// `count` initialized elements that nobody writes to while the result is used.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: usize, what: &str) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    checked(pointer, count, what)?;
    // SAFETY: neither NULL nor misaligned nor too long, as just checked; the rest is what the caller vouches for.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// # Safety
/// `count` elements that nobody else uses while the result is used.
pub(crate) unsafe fn slice_mut<'a, T>(
    pointer: *mut T,
    count: usize,
    what: &str,
) -> Result<&'a mut [T], Error> {
    if count == 0 {
        return Ok(&mut []);
    }
    checked(pointer, count, what)?;
    // SAFETY: as above.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
}

/// Refuses arrays of which one lies in the other.
pub(crate) fn apart<T, U>(keys: *const T, labels: *const U, count: usize) -> Result<(), Error> {
    let end = |start: usize, size: usize| start.saturating_add(count.saturating_mul(size));
    let (keys_at, labels_at) = (keys.addr(), labels.addr());
    if count > 0 && keys_at < end(labels_at, size_of::<U>()) && labels_at < end(keys_at, size_of::<T>()) {
        return Err(Error::new(TM_LPM_POINTER, "keys and labels overlap"));
    }
    Ok(())
}

/// # Safety
/// NULL, or a string that ends with NUL and is not written to while the result is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<Option<&'a str>, Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: what the caller vouches for.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Error::new(TM_LPM_POINTER, format!("{what} is not UTF-8")))
}

/// Hands an object over to C.
///
/// # Safety
/// NULL, or room for a pointer.
pub(crate) unsafe fn give<T>(to: *mut *mut T, object: T, what: &str) -> Result<(), Error> {
    // SAFETY: what the caller vouches for.
    let to = unsafe { exclusive(to, what) }?;
    *to = Box::into_raw(Box::new(object));
    Ok(())
}

/// Takes back what [`give`] has handed over, and drops it. NULL is no object.
///
/// # Safety
/// NULL, or what [`give`] has handed over and that has not been taken back.
pub(crate) unsafe fn take<T>(object: *mut T) {
    if object.is_null() {
        return;
    }
    guard(|| {
        // SAFETY: `give` made it by `Box::into_raw`, and it is taken back once: what the caller vouches for.
        drop(unsafe { Box::from_raw(object) });
        Ok(())
    });
}
