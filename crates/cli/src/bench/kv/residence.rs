//! How long requests are away from the client's end of the cable: from the moment one is put onto it to that at which its answer
//! comes out. Without the client's own part of a round trip (system calls, waking up); tcpdump takes the times.

use super::lab::Lab;
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tidemill_port::capture::Reader;

/// Whatever happens, it does not go on.
struct Tcpdump(Child);

impl Drop for Tcpdump {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `ask` does, watched; nanoseconds, ascending.
pub(super) fn measured(lab: &Lab, ask: &mut dyn FnMut() -> Result<Vec<u32>>) -> Result<Vec<u32>> {
    let file = tempfile::NamedTempFile::new().context("a file for tcpdump")?;
    let mut command = Command::new("tcpdump");
    command.args([
        "-i",
        "client",
        "--time-stamp-precision=nano",
        "-s",
        "128",
        "-B",
        "16384",
        "-n",
        "-Z",
        "root",
        "-w",
    ]);
    command.arg(file.path()).args(["port", &super::lab::PORT.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut tcpdump = Tcpdump(lab.client.enter(|| command.spawn())?.context("tcpdump")?);
    let mut said = BufReader::new(tcpdump.0.stderr.take().context("tcpdump says nothing")?);
    let mut line = String::new();
    while !line.contains("listening on") {
        line.clear();
        if said.read_line(&mut line)? == 0 {
            bail!("tcpdump does not listen: is the package tcpdump installed?");
        }
    }
    let asked = ask()?.len();
    // What it has not been given yet comes within a second.
    std::thread::sleep(Duration::from_millis(1200));
    let id = Pid::from_raw(tcpdump.0.id() as i32).context("tcpdump has no number")?;
    kill_process(id, Signal::INT).context("tcpdump")?;
    tcpdump.0.wait()?;
    let mut reader = Reader::open(file.path())?;
    let (mut sent, mut times) = (None, Vec::new());
    while let Some(record) = reader.next()? {
        let Some(is_ours) = with_data(record.data, lab.macs[0]) else { continue };
        if is_ours {
            sent = Some(record.timestamp_ns);
        } else if let Some(sent) = sent.take() {
            times.push(u32::try_from(record.timestamp_ns.saturating_sub(sent)).unwrap_or(u32::MAX));
        }
    }
    if times.len() * 100 < asked * 99 {
        bail!("tcpdump has seen {} of {asked} answers", times.len());
    }
    times.sort_unstable();
    Ok(times)
}

/// Of a frame that carries data of UDP or TCP over IPv4: whether it is from this address.
fn with_data(frame: &[u8], own: [u8; 6]) -> Option<bool> {
    let ip = frame.get(14..34)?;
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let header = match ip[9] {
        17 => 8,
        6 => usize::from(frame.get(46)? >> 4) * 4,
        _ => return None,
    };
    (frame[12..14] == [8, 0] && ip[0] == 0x45 && total > 20 + header).then_some(frame[6..12] == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_with_data_and_whose_they_are() {
        let frame = |protocol: u8, total: u8, own: u8| {
            let mut frame = vec![0; 12];
            frame[6] = own;
            frame.extend([8, 0, 0x45, 0, 0, total, 0, 0, 0, 0, 64, protocol]);
            frame.resize(46, 0);
            frame.extend([0x80, 0]);
            frame.resize(14 + usize::from(total), 0);
            frame
        };
        let own = [1, 0, 0, 0, 0, 0];
        assert_eq!(with_data(&frame(17, 60, 1), own), Some(true));
        assert_eq!(with_data(&frame(17, 60, 2), own), Some(false));
        assert_eq!(with_data(&frame(6, 60, 2), own), Some(false));
        assert_eq!(with_data(&frame(6, 52, 2), own), None, "an acknowledgment");
        assert_eq!(with_data(&frame(1, 60, 2), own), None);
        assert_eq!(with_data(&frame(17, 60, 1)[..30], own), None);
    }
}
