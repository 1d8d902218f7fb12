//! Machine code does what the interpreter does, and both what rbpf's interpreter does: thousands of random programs, each with its own inputs.

mod common;

use common::random;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tidemill_flowprog::{Context, Cookie, Engine, Function, Program};

fn cookie(rng: &mut StdRng) -> Cookie {
    let mut cookie = Cookie::default();
    rng.fill_bytes(&mut cookie.0);
    cookie
}

#[test]
fn machine_code_does_what_the_interpreter_does() {
    let mut rng = StdRng::seed_from_u64(9);
    let mut values = std::collections::BTreeSet::new();
    for round in 0..6_000 {
        let code = random::program(&mut rng);
        let program = Program::from_code(&common::nothing(), &code, "random")
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        if cfg!(all(target_arch = "x86_64", unix)) {
            assert_eq!(program.engine(), Engine::Jit);
        }
        for _ in 0..3 {
            let bytes = random::packet(&mut rng);
            let context = Context::packet(rng.random(), rng.random(), &bytes);
            let before = cookie(&mut rng);
            let (mut a, mut b) = (before, before);
            let said =
                program.interpret(Function::Pkt, &context, &mut a).expect("an accepted program is safe");
            values.insert(said);
            if let Some(compiled) = program.compiled(Function::Pkt, &context, &mut b) {
                assert_eq!(compiled, said, "round {round}: {code:02x?}");
                assert_eq!(a, b, "round {round}: {code:02x?}");
            }
        }
    }
    assert!(values.len() > 10_000, "programs calculate: {} values", values.len());
}

/// The context and the cookie one behind the other, with the packet's real addresses.
fn memory(context: &[u64; 7], cookie: &Cookie) -> Vec<u8> {
    let mut memory = context.map(u64::to_le_bytes).concat();
    memory.extend(cookie.0);
    memory
}

#[test]
fn programs_mean_what_another_interpreter_says() {
    let mut rng = StdRng::seed_from_u64(10);
    let mut compared = 0;
    while compared < 2_000 {
        let code = random::program(&mut rng);
        // rbpf 0.4 departs from the standard (RFC 9669, 4.1 and 4.3) in three places: it leaves the upper half in a 32-bit x % 0, its interpreter (not its
        // JIT) compares 64 bits with a constant whose sign it does not extend, and panics where -x overflows and overflows are checked.
        let departs = |slot: &[u8]| {
            let compares = matches!(slot[0], 0x15 | 0x25 | 0x35 | 0x55 | 0xa5 | 0xb5);
            matches!(slot[0], 0x9c | 0x87) || compares && slot[7] & 0x80 != 0
        };
        if code.chunks(8).any(departs) {
            continue;
        }
        compared += 1;
        let program = Program::from_code(&common::nothing(), &code, "random").unwrap();
        let mut bytes = vec![0; rng.random_range(0..80)];
        rng.fill_bytes(&mut bytes);
        // No headers: l4 is the end.
        bytes.iter_mut().take(1).for_each(|byte| *byte = 0);
        let (now_ns, expires_ns) = (rng.random(), rng.random());
        let (mut ours, before) = (Cookie::default(), cookie(&mut rng));
        ours.clone_from(&before);
        let context = Context::packet(now_ns, expires_ns, &bytes);
        let said = program.interpret(Function::Pkt, &context, &mut ours).unwrap();

        let ends = bytes.as_ptr_range();
        let [begin, end] = [ends.start, ends.end].map(|end| end.addr() as u64);
        let facts = bytes.len() as u64 | u64::from(context.protocol()) << 40;
        let mut memory = memory(&[now_ns, expires_ns, begin, end, end, facts, 0], &before);
        let prologue = [common::mov(2, common::R(1)), common::alu(common::ADD, 2, common::I(56))];
        let code = [prologue.as_flattened(), &code].concat();
        let theirs = {
            let mut vm = rbpf::EbpfVmRaw::new(Some(&code)).unwrap();
            vm.register_allowed_memory(begin..end);
            vm.execute_program(&mut memory).unwrap()
        };
        assert_eq!((theirs, &memory[56..]), (said, &ours.0[..]), "{code:02x?}");
    }
}
