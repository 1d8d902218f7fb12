//! CPU use, from `/proc`: the machine's, or that of the processes of one name.

use std::fs;
use std::path::{Path, PathBuf};

/// A tick of `/proc`: user space is told hundredths of a second, whatever the kernel's own.
const TICK_NS: u64 = 10_000_000;
/// Processes of the name are looked for after so many readings, and when one is gone.
const LOOK: u32 = 30;

/// Whose use, and how far it was counted.
#[derive(Debug)]
pub(crate) struct Cpu {
    proc: PathBuf,
    of: Of,
}

#[derive(Debug)]
enum Of {
    /// Busy and all, in ticks.
    Machine(Option<[u64; 2]>),
    Processes(Processes),
}

#[derive(Debug)]
struct Processes {
    name: String,
    known: Vec<Process>,
    until_look: u32,
}

/// One of them: numbers are given again, but not with the same start.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    start: u64,
    ticks: u64,
}

impl Cpu {
    /// With this `/proc`. `process`: a name; without one it is the machine's.
    pub(crate) fn new(proc: &Path, process: Option<String>) -> Self {
        let of = match process {
            Some(name) => Of::Processes(Processes { name, known: Vec::new(), until_look: 0 }),
            None => Of::Machine(None),
        };
        Cpu { proc: proc.to_owned(), of }
    }

    /// Percent since the last reading, which was so long ago: of one processor for processes, of all for the machine. None: there was none before.
    pub(crate) fn percent(&mut self, elapsed_ns: u64) -> Result<Option<f64>, String> {
        let Cpu { proc, of } = self;
        let last = match of {
            Of::Machine(last) => last,
            Of::Processes(processes) => return processes.percent(proc, elapsed_ns),
        };
        let path = proc.join("stat");
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let now = machine(&text).ok_or_else(|| format!("{}: no line for all processors", path.display()))?;
        let Some(before) = last.replace(now) else { return Ok(None) };
        // What waits for a disk may count less than it did.
        let [busy, all] = [0, 1].map(|at| now[at].saturating_sub(before[at]));
        Ok((all > 0).then(|| busy.min(all) as f64 / all as f64 * 100.0))
    }
}

impl Processes {
    fn percent(&mut self, proc: &Path, elapsed_ns: u64) -> Result<Option<f64>, String> {
        let (mut ticks, before) = (0_u64, self.known.len());
        self.known.retain_mut(|known| {
            let Some(now) = read(proc, known.pid).filter(|now| now.start == known.start) else {
                return false;
            };
            ticks = ticks.saturating_add(now.ticks.saturating_sub(known.ticks));
            known.ticks = now.ticks;
            true
        });
        let measured = self.known.len();
        self.until_look = self.until_look.saturating_sub(1);
        if measured == 0 || measured < before || self.until_look == 0 {
            self.look(proc)?;
            self.until_look = LOOK;
        }
        if self.known.is_empty() {
            let name = &self.name;
            return Err(format!("no process named {name:?} is seen in {}", proc.display()));
        }
        let percent = ticks as f64 * TICK_NS as f64 * 100.0 / elapsed_ns.max(1) as f64;
        Ok((measured > 0).then_some(percent))
    }

    /// Adds those that are not known.
    fn look(&mut self, proc: &Path) -> Result<(), String> {
        let entries = fs::read_dir(proc).map_err(|error| format!("{}: {error}", proc.display()))?;
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in numbers {
            if self.known.iter().any(|known| known.pid == pid) {
                continue;
            }
            let name = fs::read_to_string(proc.join(pid.to_string()).join("comm")).unwrap_or_default();
            if name.strip_suffix('\n') == Some(self.name.as_str()) {
                self.known.extend(read(proc, pid));
            }
        }
        Ok(())
    }
}

fn read(proc: &Path, pid: u32) -> Option<Process> {
    let text = fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    let (ticks, start) = process(&text)?;
    Some(Process { pid, start, ticks })
}

/// Of `/proc/stat`: ticks in which processors were busy, and all. What guests take is in user's; what was stolen from this machine is time that it did not have.
fn machine(text: &str) -> Option<[u64; 2]> {
    let mut words = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let mut ticks = [0_u64; 7];
    for place in &mut ticks {
        *place = words.next()?.parse().ok()?;
    }
    let [user, nice, system, idle, iowait, irq, softirq] = ticks;
    let sum = |of: &[u64]| of.iter().fold(0_u64, |sum, one| sum.saturating_add(*one));
    let busy = sum(&[user, nice, system, irq, softirq]);
    Some([busy, sum(&[busy, idle, iowait])])
}

/// Of `/proc/PID/stat`: ticks of all its threads, in user space and for it in the kernel; when it was started. The name, in parentheses, may hold anything.
fn process(text: &str) -> Option<(u64, u64)> {
    let (_, fields) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // proc(5) counts from 1, and two are before these.
    let number = |nth: usize| fields.get(nth - 3)?.parse::<u64>().ok();
    Some((number(14)?.checked_add(number(15)?)?, number(22)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const SECOND: u64 = 1_000_000_000;

    /// As the kernel writes it: user and system time, start.
    fn stat(pid: u32, name: &str, [user, system, start]: [u64; 3]) -> String {
        format!(
            "{pid} ({name}) S 1 {pid} {pid} 0 -1 4194560 85 0 0 0 {user} {system} 7 8 20 0 10 0 {start} 437215232 1024\n"
        )
    }

    fn put(proc: &Path, pid: u32, name: &str, times: [u64; 3]) {
        let folder = proc.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
        fs::write(folder.join("stat"), stat(pid, name, times)).unwrap();
    }

    #[test]
    fn fields_are_where_the_kernel_writes_them() {
        assert_eq!(process(&stat(7, "memcached", [30, 12, 555])), Some((42, 555)));
        assert_eq!(process(&stat(7, "a) R 1 (b", [1, 2, 3])), Some((3, 3)));
        assert_eq!(process("7 (memcached) S 1 7"), None);
        assert_eq!(process(""), None);
        let text = "cpu  10 1 5 80 3 2 1 40 6 0\ncpu0 5 0 2 40 1 1 0 20 3 0\nintr 5\n";
        assert_eq!(machine(text), Some([19, 102]));
        assert_eq!(machine("cpu0 5 0 2 40 1 1 0 20 3 0\n"), None);
        assert_eq!(machine("cpu  1 2 3\n"), None);
    }

    #[test]
    fn the_machines_use_is_by_its_own_ticks() {
        let proc = tempfile::tempdir().unwrap();
        let mut cpu = Cpu::new(proc.path(), None);
        let said = cpu.percent(SECOND).unwrap_err();
        assert!(said.contains("stat: "), "{said}");
        let mut percent = |busy: u64, idle: u64| {
            let text = format!("cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\n");
            fs::write(proc.path().join("stat"), text).unwrap();
            cpu.percent(SECOND).unwrap()
        };
        assert_eq!(percent(1000, 5000), None, "nothing to compare with");
        assert_eq!(percent(1050, 5150), Some(25.0));
        assert_eq!(percent(1250, 5150), Some(100.0));
        assert_eq!(percent(1250, 5150), None, "no time has passed");
        // A machine that was taken from a snapshot.
        assert_eq!(percent(100, 9000), Some(0.0));
        fs::write(proc.path().join("stat"), "").unwrap();
        assert!(cpu.percent(SECOND).unwrap_err().ends_with("no line for all processors"));
    }

    #[test]
    fn processes_of_a_name_are_summed_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path();
        let mut cpu = Cpu::new(proc, Some("memcached".into()));
        assert!(cpu.percent(SECOND).unwrap_err().starts_with("no process named \"memcached\""));
        put(proc, 40, "memcached", [500, 100, 77]);
        put(proc, 41, "memcached2", [9, 9, 9]);
        put(proc, 42, "nginx", [9, 9, 9]);
        assert_eq!(cpu.percent(SECOND), Ok(None), "nothing to compare with");
        put(proc, 40, "memcached", [540, 110, 77]);
        put(proc, 41, "memcached2", [5000, 9, 9]);
        assert_eq!(cpu.percent(SECOND), Ok(Some(50.0)));
        // In two seconds; more than one processor's.
        put(proc, 40, "memcached", [840, 110, 77]);
        assert_eq!(cpu.percent(2 * SECOND), Ok(Some(150.0)));
        // A second one is found in time, and counts from then on.
        put(proc, 43, "memcached", [1000, 0, 80]);
        let found = (0..LOOK).map(|_| cpu.percent(SECOND)).all(|percent| percent == Ok(Some(0.0)));
        assert!(found);
        put(proc, 43, "memcached", [1010, 0, 80]);
        put(proc, 40, "memcached", [850, 110, 77]);
        assert_eq!(cpu.percent(SECOND), Ok(Some(20.0)));
        // The first is gone, and its number is another's.
        put(proc, 40, "memcached", [5, 0, 99]);
        put(proc, 43, "memcached", [1040, 0, 80]);
        assert_eq!(cpu.percent(SECOND), Ok(Some(30.0)));
        put(proc, 40, "memcached", [6, 0, 99]);
        assert_eq!(cpu.percent(SECOND), Ok(Some(1.0)));
        for pid in ["40", "43"] {
            fs::remove_dir_all(proc.join(pid)).unwrap();
        }
        assert!(cpu.percent(SECOND).is_err());
        put(proc, 90, "memcached", [6, 0, 200]);
        assert_eq!((cpu.percent(SECOND), cpu.percent(SECOND)), (Ok(None), Ok(Some(0.0))));
    }

    /// The machine that this runs on, and this process.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_real_files_are_read() {
        let name = fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned();
        let (mut machine, mut own) =
            (Cpu::new(Path::new("/proc"), None), Cpu::new(Path::new("/proc"), Some(name)));
        assert_eq!((machine.percent(1), own.percent(1)), (Ok(None), Ok(None)));
        let started = Instant::now();
        let (mut busy, mut mine) = (false, false);
        while !busy || !mine {
            assert!(started.elapsed() < Duration::from_secs(20), "{busy} {mine}");
            let turn = Instant::now();
            while turn.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
            let percent = machine.percent(1).unwrap().unwrap_or(0.0);
            assert!((0.0..=100.0).contains(&percent), "{percent}");
            busy |= percent > 0.0;
            mine |= own.percent(turn.elapsed().as_nanos() as u64).unwrap().is_some_and(|mine| mine > 0.0);
        }
    }
}
