//! SAIL for IPv6: the form for small tables ([`small`], `sail-l`) and the one for large tables ([`hybrid`], `sail-hybrid`).
//!
//! Source: Q. Fu, "High performance software packet processing" (2020), 3.6; the IPv4 forms are those of 3.3 and 3.4. The idea of both:
//! what says *how long* the match is lies in little memory of bounded size ("on chip": a block RAM, or the caches of a CPU), and
//! what says *where the match leads* in large memory ("off chip"), which a lookup touches once or twice. Neither structure knows of a
//! chip; each says for an address of its memory on which side the source has it (`on_chip`), so that experiments can count both.
//!
//! Both are plain data, patched as [copies](crate::copies).

pub mod hybrid;
pub mod small;
