//! Hostile objects: cut short, bytes changed, sections that lie, functions that are missing, twice there or refer to something. Each gives one
//! clear error or a program that runs; none panics.

mod common;

use common::*;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tidemill_flowprog::shipped::{SHIPPED, WEB};
use tidemill_flowprog::{Context, Cookie, Function, LoadError, MAX_OBJECT, Program};

/// A section to be written.
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    info: u32,
    data: Vec<u8>,
}

const CODE: u64 = 6;

fn section(name: &'static str, data: Vec<u8>) -> Section {
    Section { name, kind: 1, flags: CODE, info: 0, data }
}

/// An object of these sections; the first is number 1.
fn object(sections: &[Section]) -> Vec<u8> {
    let mut names = vec![0];
    let mut body = Vec::new();
    let mut headers = vec![0; 64];
    let mut header = |name: usize, kind: u32, flags: u64, offset: usize, size: usize, info: u32| {
        headers.extend((name as u32).to_le_bytes());
        headers.extend(kind.to_le_bytes());
        for word in [flags, 0, offset as u64, size as u64] {
            headers.extend(word.to_le_bytes());
        }
        headers.extend([0_u32.to_le_bytes(), info.to_le_bytes()].concat());
        headers.extend([8_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat());
    };
    for section in sections {
        let name = names.len();
        names.extend(section.name.as_bytes());
        names.push(0);
        header(name, section.kind, section.flags, 64 + body.len(), section.data.len(), section.info);
        body.extend(&section.data);
    }
    header(0, 3, 0, 64 + body.len(), names.len(), 0);
    body.extend(&names);
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    elf.extend([1_u16.to_le_bytes(), 247_u16.to_le_bytes()].concat());
    elf.extend(1_u32.to_le_bytes());
    for word in [0, 0, 64 + body.len() as u64] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(0_u32.to_le_bytes());
    for half in [64, 0, 0, 64, sections.len() as u16 + 2, sections.len() as u16 + 1] {
        elf.extend(half.to_le_bytes());
    }
    assert_eq!(elf.len(), 64);
    [elf, body, headers].concat()
}

#[track_caller]
fn wrong(bytes: &[u8], why: &str) {
    let said = Program::load(bytes, "p").map_or_else(|error| error.to_string(), |_| "loaded".into());
    assert_eq!(said, format!("p: {why}"));
}

fn good() -> Vec<u8> {
    object(&[section("init", nothing()), section("pkt", nothing())])
}

#[test]
fn what_an_object_must_be() {
    Program::load(&good(), "p").unwrap();
    let changed = |at: usize, byte: u8| {
        let mut bytes = good();
        bytes[at] = byte;
        bytes
    };
    wrong(&changed(5, 2), "byte 5: most significant byte first, where BPF objects have it last");
    wrong(&changed(18, 62), "byte 18: for machine 62, where BPF is 247");
    wrong(&changed(16, 2), "byte 16: type 2, where an object is 1");
    for (bytes, begins) in [
        (vec![], "p: not an ELF file of 64 bits: "),
        (b"#!/bin/sh\n".to_vec(), "p: not an ELF file of 64 bits: "),
        (changed(4, 1), "p: not an ELF file of 64 bits: "),
        (changed(0x28 + 5, 1), "p: section headers: "),
        (changed(0x3c, 200), "p: section headers: "),
    ] {
        let error = Program::load(&bytes, "p").unwrap_err().to_string();
        assert!(error.starts_with(begins), "{error}");
    }
    wrong(&vec![0; MAX_OBJECT + 1], "1048577 bytes: an object has 1048576 at most");
}

#[test]
fn what_its_sections_must_be() {
    let both = || [section("init", nothing()), section("pkt", nothing())];
    let [init, pkt] = both();
    wrong(&object(&[init]), "has no section pkt: the function belongs there, SEC(\"pkt\")");
    wrong(&object(&[pkt]), "has no section init: the function belongs there, SEC(\"init\")");
    let [init, pkt] = both();
    wrong(&object(&[init, pkt, section("pkt", nothing())]), "section 3 (pkt): there is another");
    let [init, mut pkt] = both();
    pkt.flags = 2;
    wrong(&object(&[init, pkt]), "section 2 (pkt): has no instructions");
    let [mut init, pkt] = both();
    init.kind = 8;
    wrong(&object(&[init, pkt]), "section 1 (init): has no instructions");
    let [init, pkt] = both();
    let refers = Section { name: ".relpkt", kind: 9, flags: 0, info: 2, data: vec![0; 16] };
    wrong(
        &object(&[init, pkt, refers]),
        "section 3: pkt refers to data, a map or another function: a program has its cookie only",
    );
    let [init, pkt] = both();
    let elsewhere = Section { name: ".rel.BTF", kind: 9, flags: 0, info: 4, data: vec![0; 16] };
    Program::load(&object(&[init, pkt, elsewhere]), "p").unwrap();
    let many: Vec<Section> = (0..300).map(|_| section("x", vec![])).collect();
    wrong(&object(&many), "302 sections: an object has 256 at most");
}

#[test]
fn sizes_that_lie() {
    let bytes = good();
    // The header of section 2 (pkt), from the table at the end.
    let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
    let header = table + 2 * 64;
    let lying = |at: usize, value: u64| {
        let mut bytes = bytes.clone();
        bytes[header + at..header + at + 8].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    for value in [1 << 20, 1 << 40, u64::MAX, u64::MAX - 7, i64::MAX as u64] {
        wrong(&lying(0x20, value), "section 2 (pkt): its offset and size lead outside of the file");
        wrong(&lying(0x18, value), "section 2 (pkt): its offset and size lead outside of the file");
    }
    wrong(&lying(0x20, 0), "pkt: instruction 0: there are no instructions");
    wrong(&lying(0x20, 8), "pkt: instruction 0: the function runs past its end");
    wrong(&lying(0x20, 12), "pkt: instruction 1: 4 bytes of an instruction, which has 8");
    // Into what follows it: names, no instructions.
    assert!(matches!(
        Program::load(&lying(0x20, 24), "p"),
        Err(LoadError::Refused { function: Function::Pkt, at: 2, .. })
    ));
}

/// Whatever has been loaded runs, and does what the interpreter does.
fn runs(program: &Program, rng: &mut StdRng) {
    let bytes = random::packet(rng);
    let mut cookie = Cookie::default();
    rng.fill_bytes(&mut cookie.0);
    for (function, context) in [
        (Function::Init, Context::decision(rng.random(), 0, 64)),
        (Function::Pkt, Context::packet(rng.random(), 0, &bytes)),
    ] {
        let (mut a, mut b) = (cookie, cookie);
        let said = program.interpret(function, &context, &mut a).unwrap_or_else(|error| panic!("{error}"));
        if let Some(compiled) = program.compiled(function, &context, &mut b) {
            assert_eq!((compiled, b), (said, a));
        }
    }
}

#[test]
fn cut_short_at_every_length() {
    let object = SHIPPED[usize::from(WEB)].object;
    for len in 0..object.len() {
        Program::load(&object[..len], "p").expect_err("its section headers are at the end");
    }
}

#[test]
fn with_bytes_changed() {
    let mut rng = StdRng::seed_from_u64(3);
    let (mut loaded, mut not) = (0, 0);
    for round in 0..20_000 {
        let mut bytes = SHIPPED[round % SHIPPED.len()].object.to_vec();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        match Program::load(&bytes, "p") {
            Ok(program) => {
                loaded += 1;
                runs(&program, &mut rng);
            }
            Err(error) => {
                not += 1;
                assert!(error.to_string().len() < 300, "{error}");
            }
        }
    }
    assert!(loaded > 100 && not > 1000, "{loaded} loaded, {not} not");
}
