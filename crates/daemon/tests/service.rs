//! What a service manager and the journal hear of a process, and what a confined thread can still do. The processes that are looked at are this one, started again.
#![allow(clippy::unwrap_used)] // a test may

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_daemon::notify::{self, Watchdog};

/// This test program again, at one test that is ignored otherwise.
fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads", "1"]).stdin(Stdio::null());
    command
}

#[test]
#[ignore = "started by the_manager_hears_what_it_is_told, with a manager's variables"]
fn as_a_service() {
    notify::ready("at\nwork");
    notify::reloading();
    notify::ready("reloaded");
    let mut dog = Watchdog::of_manager();
    let start = Instant::now();
    // A quarter of two seconds apart, and only if all go on.
    let told: Vec<bool> = [(0, 1), (100, 2), (500, 2), (600, 3), (1100, 3), (1700, 3)]
        .map(|(ms, at)| dog.look(start + Duration::from_millis(ms), || vec![Some(at), None]))
        .into();
    assert_eq!(
        told,
        [true, false, true, false, true, false]
            .map(|told| told && std::env::var_os("WATCHDOG_USEC").is_some())
    );
    notify::stopping("done");
}

#[cfg(target_os = "linux")]
#[test]
fn the_manager_hears_what_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let output =
        again("as_a_service").env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000000").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    socket.set_nonblocking(true).unwrap();
    let mut heard = Vec::new();
    let mut bytes = [0; 4096];
    while let Ok(length) = socket.recv(&mut bytes) {
        heard.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
    }
    let begins = |at: usize, lines: &[&str]| {
        let said: Vec<&str> = heard[at].lines().collect();
        assert_eq!(said.len(), lines.len(), "{heard:?}");
        said.iter().zip(lines).for_each(|(said, line)| assert!(said.starts_with(line), "{heard:?}"));
    };
    assert_eq!(heard.len(), 7, "{heard:?}");
    begins(0, &["READY=1", "STATUS=at work"]);
    begins(1, &["RELOADING=1", "MONOTONIC_USEC="]);
    begins(2, &["READY=1", "STATUS=reloaded"]);
    (3..6).for_each(|at| begins(at, &["WATCHDOG=1"]));
    begins(6, &["STOPPING=1", "STATUS=done"]);
    // Without a manager all of it is nothing.
    assert!(
        again("as_a_service")
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .status()
            .unwrap()
            .success()
    );
}

#[test]
#[ignore = "started by a_panic_is_critical_in_the_journal"]
fn as_one_that_panics() {
    tidemill_daemon::journal::tell_panics();
    let panics = || {
        panic!("no such packet\nin here");
    };
    let thread = std::thread::Builder::new().name("worker-7".into());
    assert!(thread.spawn(panics).unwrap().join().is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn a_panic_is_critical_in_the_journal() {
    use std::os::unix::fs::MetadataExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("said");
    // Its file is the journal; or the variable is there, and standard error is somewhere else.
    for is_journal in [true, false] {
        let said = std::fs::File::create(&path).unwrap();
        let there = said.metadata().unwrap();
        let inode = there.ino() + u64::from(!is_journal);
        let mut command = again("as_one_that_panics");
        command.env("JOURNAL_STREAM", format!("{}:{inode}", there.dev())).env_remove("RUST_BACKTRACE");
        assert!(command.stdout(Stdio::null()).stderr(said).status().unwrap().success());
        let said = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
        let level = if is_journal { "<2>" } else { "" };
        let first = lines.iter().position(|line| {
            line.starts_with(&format!("{level}thread 'worker-7'"))
                && line.contains("panicked at ")
                && line.contains("service.rs:")
        });
        let first = first.unwrap_or_else(|| panic!("{said}"));
        assert_eq!(
            lines[first + 1..first + 3],
            [format!("{level}no such packet"), format!("{level}in here")],
            "{said}"
        );
        assert!(is_journal || !said.contains("<2>"), "{said}");
    }
}

/// What a worker does that is confined and aborts.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "started by a_confined_thread_that_aborts_ends_by_that_signal"]
fn as_a_worker_that_aborts() {
    let confinement = tidemill_daemon::confine::Confinement::of_workers().unwrap();
    let abort = move || {
        confinement.take_on().unwrap();
        if std::hint::black_box(true) {
            std::process::abort();
        }
    };
    let _ = std::thread::spawn(abort).join();
}

#[cfg(target_os = "linux")]
#[test]
fn a_confined_thread_that_aborts_ends_by_that_signal() {
    use std::os::unix::process::ExitStatusExt;

    const SIGABRT: i32 = 6;
    let output = again("as_a_worker_that_aborts").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), Some(SIGABRT), "{}: {said}", output.status);
}

/// A thread as a worker is, taken over: it tries whatever it likes. What it has stays of use to it, and the other threads are as free as before.
#[cfg(target_os = "linux")]
#[test]
fn a_confined_thread_opens_neither_files_nor_sockets() {
    use nix::sys::pthread::{pthread_kill, pthread_self};
    use nix::sys::signal::{Signal, kill, raise};
    use std::fs::File;
    use std::io::{ErrorKind, Read, Seek, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::sync::mpsc::channel;
    use tidemill_daemon::confine::Confinement;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "before").unwrap();
    let mut open = File::options().read(true).write(true).open(&path).unwrap();
    let (near, mut far) = UnixStream::pair().unwrap();
    let local = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = local.local_addr().unwrap();
    let (tell, told) = channel();
    let confinement = Confinement::of_workers().unwrap();
    let inside = folder.path().to_owned();
    let (other, parent) = (pthread_self(), nix::unistd::getppid());
    let thread = std::thread::Builder::new().name("worker-0".into()).spawn(move || {
        let confined = confinement.take_on().unwrap();
        let denied = |what: &str, error: Option<std::io::Error>| {
            let Some(error) = error else { panic!("{what} can be had") };
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{what}: {error}");
        };
        let file = inside.join("file");
        denied("reading a file", File::open(&file).err());
        denied("reading the passwords", File::open("/etc/passwd").err());
        denied("ourselves", File::open("/proc/self/mem").err());
        denied("a new file", File::create(inside.join("new")).err());
        denied(
            "another mode",
            std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o777)).err(),
        );
        denied("removing", std::fs::remove_file(&file).err());
        denied("another name", std::fs::rename(&file, inside.join("b")).err());
        denied("a link", std::os::unix::fs::symlink("/", inside.join("link")).err());
        denied("a folder", std::fs::create_dir(inside.join("folder")).err());
        denied("looking around", std::fs::read_dir("/").err());
        denied("a connection", TcpStream::connect(address).err());
        denied("a listener", TcpListener::bind("[::1]:0").err());
        denied("datagrams", UdpSocket::bind("127.0.0.1:0").err());
        denied("a Unix socket", UnixListener::bind(inside.join("s")).err());
        denied("a Unix datagram", UnixDatagram::unbound().err());
        denied("a pair", UnixStream::pair().err());
        denied("a program", Command::new("/bin/true").status().err());
        denied("a thread", std::thread::Builder::new().spawn(|| ()).err());
        denied("another process", kill(parent, None::<Signal>).err().map(Into::into));
        // `abort` alone may send a signal, and to itself: with any of these all of this would end.
        let _ = (raise(Signal::SIGUSR1), pthread_kill(other, Signal::SIGABRT));
        // What is open works on; so do memory, time, waiting and locks.
        let mut near = near;
        near.write_all(b"packet").unwrap();
        let mut back = [0; 4];
        near.read_exact(&mut back).unwrap();
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        open.rewind().unwrap();
        open.write_all(b"after!").unwrap();
        let much: Vec<u8> = vec![1; 64 << 20];
        let many: Vec<Box<[u8]>> = (0..1000).map(|n| vec![0; n].into()).collect();
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(began.elapsed() >= Duration::from_millis(2));
        tell.send((confined, back, text, much.len() + many.len())).unwrap();
    });
    let thread = thread.unwrap();
    let mut heard = [0; 6];
    far.read_exact(&mut heard).unwrap();
    far.write_all(b"back").unwrap();
    thread.join().unwrap();
    let (confined, back, text, memory) = told.recv().unwrap();
    assert_eq!((&heard, &back, text.as_str(), memory), (b"packet", b"back", "before", (64 << 20) + 1000));
    assert_eq!(std::fs::read(&path).unwrap(), b"after!");
    println!("landlock: {}", confined.landlock);
    // We are as free as before.
    TcpStream::connect(address).unwrap();
    File::create(folder.path().join("new")).unwrap();
    assert!(Command::new("/bin/true").status().unwrap().success());
}
