//! The object file: two sections of instructions, and nothing that they refer to.
//!
//! An ELF file for BPF, 64 bits, little-endian, relocatable (`clang -target bpf -c`). The function `init` is the section `init`, `pkt` is `pkt`; each is there
//! once and has instructions only. What else lies in the file (symbols, types for debuggers) is not read. A relocation of one of the two means that
//! the function refers to data, a map or another function, which a flow program has none of.

use crate::error::{Function, LoadError};
use object::elf::{EM_BPF, ET_REL, FileHeader64, SHF_EXECINSTR, SHT_PROGBITS, SHT_REL, SHT_RELA};
use object::endian::LittleEndian;
use object::read::elf::{FileHeader, SectionHeader};

/// The largest object that is looked at, bytes.
pub const MAX_OBJECT: usize = 1 << 20;
/// The most sections that one has.
const MAX_SECTIONS: usize = 256;

/// The instructions of both functions.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) init: &'a [u8],
    pub(crate) pkt: &'a [u8],
}

/// Finds the functions.
pub(crate) fn parts<'a>(bytes: &'a [u8], program: &str) -> Result<Parts<'a>, LoadError> {
    let wrong = |why: String| LoadError::object(program, why);
    if bytes.len() > MAX_OBJECT {
        return Err(wrong(format!("{} bytes: an object has {MAX_OBJECT} at most", bytes.len())));
    }
    let header = FileHeader64::<LittleEndian>::parse(bytes)
        .map_err(|error| wrong(format!("not an ELF file of 64 bits: {error}")))?;
    let order = header
        .endian()
        .map_err(|_| wrong("byte 5: most significant byte first, where BPF objects have it last".into()))?;
    if header.e_machine.get(order) != EM_BPF {
        return Err(wrong(format!(
            "byte 18: for machine {}, where BPF is {EM_BPF}",
            header.e_machine.get(order)
        )));
    }
    if header.e_type.get(order) != ET_REL {
        return Err(wrong(format!(
            "byte 16: type {}, where an object is {ET_REL}",
            header.e_type.get(order)
        )));
    }
    let sections =
        header.sections(order, bytes).map_err(|error| wrong(format!("section headers: {error}")))?;
    if sections.len() > MAX_SECTIONS {
        return Err(wrong(format!("{} sections: an object has {MAX_SECTIONS} at most", sections.len())));
    }
    let find = |function: Function| {
        let mut found: Option<(usize, &'a [u8])> = None;
        for (index, section) in sections.enumerate() {
            let name = sections
                .section_name(order, section)
                .map_err(|error| wrong(format!("section {}: {error}", index.0)))?;
            if name != function.name().as_bytes() {
                continue;
            }
            let here = |why: &str| wrong(format!("section {} ({function}): {why}", index.0));
            if found.is_some() {
                return Err(here("there is another"));
            }
            if section.sh_type(order) != SHT_PROGBITS
                || section.sh_flags(order) & u64::from(SHF_EXECINSTR) == 0
            {
                return Err(here("has no instructions"));
            }
            let data = section
                .data(order, bytes)
                .map_err(|_| here("its offset and size lead outside of the file"))?;
            found = Some((index.0, data));
        }
        found.ok_or_else(|| {
            wrong(format!("has no section {function}: the function belongs there, SEC(\"{function}\")"))
        })
    };
    let (init_at, init) = find(Function::Init)?;
    let (pkt_at, pkt) = find(Function::Pkt)?;
    for (index, section) in sections.enumerate() {
        let of = section.sh_info(order) as usize;
        let relocates = matches!(section.sh_type(order), SHT_REL | SHT_RELA) && section.sh_size(order) > 0;
        if relocates && (of == init_at || of == pkt_at) {
            let function = if of == init_at { Function::Init } else { Function::Pkt };
            return Err(wrong(format!(
                "section {}: {function} refers to data, a map or another function: a program has its cookie only",
                index.0
            )));
        }
    }
    Ok(Parts { init, pkt })
}
