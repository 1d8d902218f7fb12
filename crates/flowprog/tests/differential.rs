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
