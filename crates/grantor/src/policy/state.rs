//! One Lua state with a policy in it: made, closed off, asked, held to its limits.
//!
//! Limits are counted by Luau's interrupt, which comes at every call, at every turn of a loop and at every step of pattern matching, in
//! coroutines and under `pcall` as well: a script cannot go on without passing one but to the end of a function's text, and once the limit is reached every further one
//! raises an error too, so that `pcall` in a loop gains nothing. Calls that work in C without interrupts are bounded by the prelude; operators on long texts are not.

use crate::answer::{Answer, Failure};
use crate::error::PolicyError;
use crate::policy::expiring::{ENTRIES_MAX, Expiring};
use crate::policy::tables::PrefixTable;
use crate::policy::wire::{self, ABSENT, ANSWER, FIELDS_MAX, HEADER, QUESTION};
use crate::policy::{Clock, Policy, Surroundings, natives};
use crate::question::{Question, Signature};
use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Buffer, Error, Function, Lua, LuaOptions, StdLib, Table, Value, VmState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_lpm::Label;
use tidemill_wire::flow::Addresses;

const PRELUDE: &str = include_str!("prelude.lua");

/// Steps that loading a script may take.
const LOAD_STEPS: u64 = 2_000_000;
/// And how long, but for its tables: a step may be a call that works in C for some milliseconds.
const LOAD_S: u64 = 10;

/// What the interrupt counts, and what natives go by.
pub(crate) struct Meter {
    /// Steps left.
    left: AtomicU64,
    /// When to stop, by the clock.
    deadline_ns: AtomicU64,
    tripped: AtomicBool,
    /// It was the time that was up, not the steps.
    late: AtomicBool,
    clock: Clock,
    /// What goes for it while the script loads.
    loading_clock: Clock,
    loading: AtomicBool,
    /// The time that natives go by: that of the batch.
    pub(crate) now_ns: AtomicU64,
    /// Entries that the state's expiring maps may still take.
    pub(crate) entries: AtomicU64,
}

impl Meter {
    fn arm(&self, steps: u64, deadline_ns: u64) {
        self.left.store(steps, Relaxed);
        self.deadline_ns.store(deadline_ns, Relaxed);
        self.tripped.store(false, Relaxed);
        self.late.store(false, Relaxed);
    }

    /// Whether the script is not loaded yet.
    pub(crate) fn is_loading(&self) -> bool {
        self.loading.load(Relaxed)
    }

    /// The time, for [`excuse`](Self::excuse).
    pub(crate) fn clock_ns(&self) -> u64 {
        if self.is_loading() { (self.loading_clock)() } else { (self.clock)() }
    }

    /// What was done since `began_ns` is not the script's to answer for: it has so much longer.
    pub(crate) fn excuse(&self, began_ns: u64) {
        let took_ns = self.clock_ns().saturating_sub(began_ns);
        self.deadline_ns.store(self.deadline_ns.load(Relaxed).saturating_add(took_ns), Relaxed);
    }

    /// One interrupt.
    #[inline]
    fn step(&self) -> Result<VmState, Error> {
        let left = self.left.load(Relaxed);
        if left > 0 && self.clock_ns() < self.deadline_ns.load(Relaxed) {
            self.left.store(left - 1, Relaxed);
            return Ok(VmState::Continue);
        }
        self.left.store(0, Relaxed);
        if left > 0 {
            self.late.store(true, Relaxed);
        }
        self.tripped.store(true, Relaxed);
        Err(Error::runtime("the policy takes too long"))
    }
}

/// A map that outlives its state, with the name that its script has given it.
pub(crate) type Kept = (String, Arc<Mutex<Expiring>>);

/// What a script has said about itself while it was loading.
pub(crate) struct Declared {
    pub(crate) signature: Option<Signature>,
    pub(crate) fields: Vec<(Arc<PrefixTable>, bool)>,
    pub(crate) maps: Vec<Kept>,
    /// What the state before has kept, for those of the same names and sizes.
    pub(crate) before: Vec<Kept>,
}

/// What went wrong, in one line for the log.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) failure: Failure,
    pub(crate) message: String,
}

/// The state.
pub(crate) struct State {
    lua: Lua,
    run: Function,
    questions: Buffer,
    answers: Buffer,
    meter: Arc<Meter>,
    signature: Signature,
    /// Tables whose values each question is given; `true` for the destination's.
    fields: Vec<(Arc<PrefixTable>, bool)>,
    maps: Vec<Kept>,
    memory: usize,
    /// Bytes in use after the last collection.
    kept: usize,
    scratch: Scratch,
}

/// Room to work in, reused.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    fields: Vec<[f64; FIELDS_MAX]>,
    keys4: Vec<u32>,
    keys6: Vec<u128>,
    at4: Vec<usize>,
    at6: Vec<usize>,
    labels: Vec<Label>,
    values: Vec<Option<u32>>,
}

/// How a batch went.
pub(crate) struct Went {
    /// Calls into Lua.
    pub(crate) calls: u64,
    /// The state must not be asked again.
    pub(crate) spent: bool,
}

impl State {
    /// Makes a state and loads the script into it. It takes up maps that the state `before` it has kept: making them is what takes long where they are large.
    pub(crate) fn new(
        policy: &Policy,
        around: &Surroundings,
        seed: u64,
        before: &[Kept],
    ) -> Result<State, PolicyError> {
        let meter = Arc::new(Meter {
            left: AtomicU64::new(LOAD_STEPS),
            deadline_ns: AtomicU64::new((around.loading)().saturating_add(LOAD_S * 1_000_000_000)),
            tripped: AtomicBool::new(false),
            late: AtomicBool::new(false),
            clock: around.clock.clone(),
            loading_clock: around.loading.clone(),
            loading: AtomicBool::new(true),
            now_ns: AtomicU64::new(0),
            entries: AtomicU64::new(ENTRIES_MAX as u64),
        });
        let before = before.to_vec();
        let declared = Declared { signature: None, fields: Vec::new(), maps: Vec::new(), before };
        let declared = Arc::new(Mutex::new(declared));
        let made = Self::load(policy, seed, &meter, &declared);
        let mut state = made.map_err(|error| match error {
            LoadError::Lua(error) if meter.tripped.load(Relaxed) => {
                let what = message(&error, &policy.name);
                let late = meter.late.load(Relaxed);
                let most = if late { format!("{LOAD_S} s") } else { format!("{LOAD_STEPS} steps") };
                PolicyError::Script(format!("{what}: more than {most} while loading"))
            }
            LoadError::Lua(error) => PolicyError::Script(message(&error, &policy.name)),
            LoadError::Wrong(what) => PolicyError::Script(format!("{}: {what}", policy.name)),
        })?;
        meter.loading.store(false, Relaxed);
        let mut declared = declared.lock().unwrap_or_else(PoisonError::into_inner);
        state.signature = declared.signature.unwrap_or(Signature::ALL);
        state.fields = std::mem::take(&mut declared.fields);
        state.maps = std::mem::take(&mut declared.maps);
        declared.before.clear();
        // Else each batch would spend the state.
        if !state.collected() {
            let [kept, most] = [state.kept, state.memory].map(|bytes| bytes as f64 / f64::from(1 << 20));
            return Err(PolicyError::Script(format!(
                "{}: keeps {kept:.1} of its {most} MiB when it has loaded, and three quarters is the most: raise grantor.policy.memory_mib, or read lists by lpm()",
                policy.name
            )));
        }
        Ok(state)
    }

    fn load(
        policy: &Policy,
        seed: u64,
        meter: &Arc<Meter>,
        declared: &Arc<Mutex<Declared>>,
    ) -> Result<State, LoadError> {
        let libraries = StdLib::TABLE
            | StdLib::STRING
            | StdLib::BIT
            | StdLib::MATH
            | StdLib::BUFFER
            | StdLib::COROUTINE
            | StdLib::UTF8;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_compiler(Compiler::new().set_optimization_level(2).set_debug_level(1));
        let memory = policy.memory;
        lua.set_memory_limit(memory)?;
        let interrupts = meter.clone();
        lua.set_interrupt(move |_| interrupts.step());
        let questions = lua.create_buffer_with_capacity(policy.batch * QUESTION)?;
        let answers = lua.create_buffer_with_capacity(HEADER + policy.batch * ANSWER)?;
        let native = natives::table(&lua, &policy.library, meter, declared, seed)?;
        let parameters = natives::parameters(&lua, &policy.parameters)?;
        let sizes = (QUESTION, ANSWER, HEADER, seed as i32);
        // Not inlined: its errors count calls to find the script's line.
        let plain = Compiler::new().set_optimization_level(1).set_debug_level(1);
        let prelude = lua.load(PRELUDE).set_name("=prelude").set_compiler(plain);
        let (run, loaded): (Function, Function) =
            prelude.call((native, parameters, &questions, &answers, sizes.0, sizes.1, sizes.2, sizes.3))?;
        lua.sandbox(true)?;
        // As text whatever it begins with: bytecode is not checked by anybody.
        let script = lua.load(policy.text.as_str()).set_mode(ChunkMode::Text);
        script.set_name(format!("={}", policy.name)).exec()?;
        let environment: Table = lua.globals();
        let Value::Function(decide) = environment.raw_get("decide")? else {
            return Err(LoadError::Wrong("defines no function decide(q)".into()));
        };
        if let Some(wrong) = loaded.call::<Option<String>>(decide)? {
            return Err(LoadError::Wrong(wrong));
        }
        let (meter, signature) = (meter.clone(), Signature::ALL);
        let fields = Vec::new();
        Ok(State {
            lua,
            run,
            questions,
            answers,
            meter,
            signature,
            fields,
            maps: Vec::new(),
            memory,
            kept: 0,
            scratch: Scratch::default(),
        })
    }

    /// By what questions are told apart.
    pub(crate) fn signature(&self) -> Signature {
        self.signature
    }

    /// The maps that outlive it.
    pub(crate) fn maps(&self) -> &[Kept] {
        &self.maps
    }

    /// Asks all questions (as many as the batch has room for) and gives each its answer or fault, in any order, once.
    ///
    /// Beside errors, each of which begins anew, it takes at most `(3 * questions + 1) * steps` steps and twice as long as the limit: when time is up, those behind have as long again, all
    /// together, so that one slow question does not take them with it. Who was being asked then may have had little of the time: he is asked again behind them. Only
    /// who has had half of it by himself fails; what is not answered by the end is late.
    pub(crate) fn ask(
        &mut self,
        now_ns: u64,
        questions: &[Question],
        limits: &Policy,
        mut each: impl FnMut(usize, Result<Answer, Fault>),
    ) -> Went {
        self.write(questions);
        self.meter.now_ns.store(now_ns, Relaxed);
        let mut deadline_ns = (self.meter.clock)().saturating_add(limits.time_ns);
        let mut again = true;
        let now_s = now_ns as f64 / 1e9;
        let (mut first, mut end, mut singly) = (0, questions.len(), false);
        let (mut put_off, mut cleared): (Option<usize>, Option<usize>) = (None, None);
        let mut went = Went { calls: 0, spent: false };
        loop {
            if first == end {
                let Some(at) = put_off.take() else { break };
                (first, end) = (at, at + 1);
            }
            let (from, last) = (first, if singly { first } else { end - 1 });
            let alone = from == last;
            let began_ns = (self.meter.clock)();
            self.meter.arm(limits.steps * (last + 1 - first) as u64, deadline_ns);
            // A call that fails before it says where it is has answered nothing: what lies there are the last batch's answers.
            self.answers.write_bytes(0, &(first as u32).to_le_bytes());
            went.calls += 1;
            let called = self.run.call::<()>((first, last, now_s));
            let tripped = self.meter.tripped.load(Relaxed);
            let failed = match called {
                Ok(()) if !tripped => None,
                Ok(()) => Some(Error::runtime("the policy takes too long")),
                Err(error) => Some(error),
            };
            let failed = failed.map(|error| {
                let at = u32::from_le_bytes(self.answers.read_bytes(0)) as usize;
                (at.clamp(first, last), self.fault(&error, limits))
            });
            let answered = failed.as_ref().map_or(last + 1, |(at, _)| *at);
            for at in first..answered {
                let bytes = self.answers.read_bytes(HEADER + at * ANSWER);
                let wrong = |what| {
                    let message = format!("{}: {what}", limits.name);
                    Fault { failure: Failure::WrongAnswer, message }
                };
                each(at, wire::answer(&bytes).map_err(wrong));
            }
            first = last + 1;
            let Some((at, fault)) = failed else { continue };
            let failure = fault.failure;
            singly |= failure == Failure::Timeout;
            went.spent = failure == Failure::Memory && !self.collected();
            // Collecting takes time as well.
            let clock = (self.meter.clock)();
            let late = failure == Failure::Timeout && self.meter.late.load(Relaxed);
            let over = late || clock >= deadline_ns;
            let own_ns = if alone { clock.saturating_sub(began_ns) } else { 0 };
            if failure == Failure::Memory && !went.spent && cleared.replace(at) != Some(at) {
                // What others had left lying may have been in the way, and is gone: he is asked once more.
                first = at;
            } else if failure == Failure::Timeout && !late && at > from {
                // Those before him have taken them: he is asked again, with steps of his own.
                first = at;
            } else if !late || own_ns >= limits.time_ns / 2 {
                each(at, Err(fault));
                first = at + 1;
            } else if again {
                put_off = Some(at);
                first = at + 1;
            } else {
                first = at;
            }
            if went.spent || (over && !again) {
                // Those have taken nothing themselves: nobody has judged them.
                let failure = if went.spent { Failure::Resting } else { Failure::Late };
                let what = if went.spent { "memory" } else { "time" };
                let message = || format!("{}: no {what} left for the questions behind it", limits.name);
                (first..end)
                    .chain(put_off)
                    .for_each(|at| each(at, Err(Fault { failure, message: message() })));
                break;
            }
            if over {
                (again, singly) = (false, true);
                deadline_ns = clock.saturating_add(limits.time_ns);
            }
        }
        // Luau does not collect when memory runs out: what is unused must not get that far.
        if self.lua.used_memory() > self.kept + self.memory / 4 {
            went.spent |= !self.collected();
        }
        went
    }

    /// Takes back what is not used any more; whether there is room now: a quarter of the memory.
    fn collected(&mut self) -> bool {
        let collected = self.lua.gc_collect().is_ok();
        self.kept = self.lua.used_memory();
        collected && self.kept <= self.memory / 4 * 3
    }

    fn fault(&self, error: &Error, limits: &Policy) -> Fault {
        let message = message(error, &limits.name);
        let failure = match root(error) {
            _ if self.meter.tripped.load(Relaxed) => Failure::Timeout,
            Error::MemoryError(_) => Failure::Memory,
            _ if message.ends_with("not enough memory") => Failure::Memory,
            _ => Failure::Error,
        };
        Fault { failure, message }
    }

    fn write(&mut self, questions: &[Question]) {
        let Scratch { bytes, fields, keys4, keys6, at4, at6, labels, values } = &mut self.scratch;
        fields.clear();
        fields.resize(questions.len(), [ABSENT; FIELDS_MAX]);
        for (field, (table, destination)) in self.fields.iter().enumerate() {
            keys4.clear();
            keys6.clear();
            at4.clear();
            at6.clear();
            for (at, question) in questions.iter().enumerate() {
                match question.flow {
                    Addresses::V4 { src, dst } => {
                        keys4.push(if *destination { dst } else { src });
                        at4.push(at);
                    }
                    Addresses::V6 { src, dst } => {
                        keys6.push(if *destination { dst } else { src });
                        at6.push(at);
                    }
                }
            }
            let mut put = |at: &[usize], values: &[Option<u32>]| {
                for (at, value) in at.iter().zip(values) {
                    fields[*at][field] = value.map_or(ABSENT, f64::from);
                }
            };
            table.get_batch4(keys4, labels, values);
            put(at4, values);
            table.get_batch6(keys6, labels, values);
            put(at6, values);
        }
        bytes.clear();
        for (question, fields) in questions.iter().zip(fields) {
            wire::put(question, fields, bytes);
        }
        self.questions.write_bytes(0, bytes);
    }
}

enum LoadError {
    Lua(Error),
    Wrong(String),
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        LoadError::Lua(error)
    }
}

/// What was wrong in the first place.
fn root(error: &Error) -> &Error {
    match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => root(cause),
        error => error,
    }
}

/// The longest message, in characters: scripts can make them as long as they like.
const MESSAGE_MAX: usize = 200;

/// A message without a place in the prelude, which whoever wrote the script has not seen.
fn without_prelude(line: &str) -> &str {
    let behind =
        line.strip_prefix("prelude:").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    behind.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(line)
}

/// What an error is that is no text: Luau says its kind and where it lies in memory.
fn kind(line: &str) -> Option<&str> {
    let (kind, place) = line.split_once(": 0x")?;
    let is_kind = !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_alphabetic());
    (is_kind && place.bytes().all(|b| b.is_ascii_hexdigit())).then_some(kind)
}

/// The error in one line that begins with the script's name, with the line number where there is one.
fn message(error: &Error, script: &str) -> String {
    let text = match root(error) {
        Error::RuntimeError(text) | Error::MemoryError(text) => text.clone(),
        Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    let mut lines = text.lines();
    let line = without_prelude(lines.next().unwrap_or_default());
    let no_text = kind(line).map(|kind| format!("an error that is a {kind}"));
    let line = no_text.as_deref().unwrap_or(line);
    let at = |line: &str| {
        let behind = line.trim_start().strip_prefix(script)?.strip_prefix(':')?;
        let number: String = behind.chars().take_while(char::is_ascii_digit).collect();
        (!number.is_empty()).then(|| format!("{script}:{number}: "))
    };
    // Who called whom stands behind the message of what Lua raised, and beside that of what we did.
    let place = match error {
        Error::CallbackError { traceback, .. } => traceback.lines().find_map(at),
        _ => lines.find_map(at),
    };
    let named = line.starts_with(script);
    let place = if named { String::new() } else { place.unwrap_or_else(|| format!("{script}: ")) };
    let clean = line.chars().take(MESSAGE_MAX).map(|c| if c.is_control() { ' ' } else { c });
    place.chars().chain(clean).collect()
}
