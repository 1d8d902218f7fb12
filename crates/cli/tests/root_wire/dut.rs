//! The router under test: Tidemill, or the Linux kernel, by which a test shows that it asks for what routers do.

use crate::lab::Family;
use crate::net::{Netns, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tidemill_control::Client;
use tidemill_control::schema::{self, path};

/// Who routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dut {
    Kernel,
    Tidemill,
}

/// A router at work in its namespace.
pub(crate) struct Router {
    pub(crate) ns: Netns,
    process: Option<Process>,
}

/// The name of the configuration in the process's folder.
const CONFIG: &str = "router.toml";

/// Starts Tidemill in a folder.
fn spawn(ns: &Netns, folder: &Path) -> Child {
    spawn_by(Command::new(env!("CARGO_BIN_EXE_tidemill")), ns, folder)
}

/// The same by a command that it is the end of.
fn spawn_by(mut command: Command, ns: &Netns, folder: &Path) -> Child {
    let file = |name: &str| File::create(folder.join(name)).unwrap();
    command.args(["run", CONFIG, "--json"]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("log"));
    ns.enter(|| command.spawn()).unwrap()
}

struct Process {
    child: Child,
    folder: tempfile::TempDir,
    control: Client,
}

impl Router {
    /// The kernel, set up already.
    pub(crate) fn kernel(ns: Netns) -> Self {
        Router { ns, process: None }
    }

    /// Starts Tidemill in a folder and waits until it answers.
    pub(crate) fn tidemill(ns: Netns, folder: tempfile::TempDir, config: &str) -> Self {
        std::fs::write(folder.path().join(CONFIG), config).unwrap();
        let child = spawn(&ns, folder.path());
        let control = Client::new(&folder.path().join("router.sock")).unwrap();
        let mut router = Router { ns, process: Some(Process { child, folder, control }) };
        router.answers();
        router
    }

    /// Waits until Tidemill answers.
    pub(crate) fn answers(&mut self) {
        let Some(process) = &mut self.process else { return };
        wait_until("Tidemill answers", Duration::from_secs(60), || {
            if let Some(status) = process.child.try_wait().unwrap() {
                panic!("Tidemill ended: {status}: {}\n{}", process.read("log"), process.read(CONFIG));
            }
            process.control.get::<schema::Summary>(path::SUMMARY, &()).is_ok()
        });
    }

    /// Kills it, without a warning.
    pub(crate) fn kill(&mut self) {
        let process = self.process.as_mut().unwrap();
        process.child.kill().unwrap();
        process.child.wait().unwrap();
    }

    /// Starts it again after [`kill`](Self::kill), with another configuration if there is one; does not wait for it.
    pub(crate) fn start_again(&mut self, config: Option<&str>) {
        let process = self.process.as_mut().unwrap();
        config.iter().for_each(|text| std::fs::write(process.folder.path().join(CONFIG), text).unwrap());
        process.child = spawn(&self.ns, process.folder.path());
    }

    /// The same without some capabilities, as `setpriv --bounding-set` has them.
    #[allow(dead_code)] // for another suite
    pub(crate) fn start_without(&mut self, capabilities: &str) {
        let process = self.process.as_mut().unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--inh-caps=-all", "--bounding-set", capabilities, env!("CARGO_BIN_EXE_tidemill")]);
        process.child = spawn_by(command, &self.ns, process.folder.path());
    }

    /// A file in its folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.process.as_ref().unwrap().folder.path().join(name)
    }

    /// Asks it to do something.
    pub(crate) fn post(&self, path: &str) -> schema::Done {
        let process = self.process.as_ref().unwrap();
        process.control.post(path, &serde_json::json!({})).unwrap()
    }

    /// The routes to exactly this prefix.
    pub(crate) fn routes_to(&self, prefix: &str) -> Vec<schema::Route> {
        let process = self.process.as_ref().unwrap();
        let query = schema::RoutesQuery { prefix: Some(prefix.into()), ..schema::RoutesQuery::default() };
        process.control.get::<schema::Routes>(path::ROUTES, &query).unwrap().routes
    }

    /// Asks for one of the control socket's pages.
    pub(crate) fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Option<T> {
        let process = self.process.as_ref()?;
        Some(process.control.get(path, &()).unwrap_or_else(|error| panic!("GET {path}: {error}")))
    }

    /// Packets dropped so far, by reason; the kernel does not say.
    pub(crate) fn drops(&self) -> BTreeMap<String, u64> {
        self.get::<schema::Summary>(path::SUMMARY).unwrap_or_default().dropped
    }

    /// Prefixes in the lookup structure of the VRF that every router has; the kernel's main table.
    pub(crate) fn prefixes(&self, family: Family) -> usize {
        match self.get::<schema::Fibs>(path::FIB) {
            Some(fibs) => {
                let ours = fibs.fibs.iter().filter(|fib| fib.family == family.number());
                ours.map(|fib| fib.prefixes as usize).max().unwrap_or(0)
            }
            None => self.ns.run(&format!("ip -{} route", family.number())).lines().count(),
        }
    }

    /// Routes that came from the kernel.
    pub(crate) fn kernel_routes(&self) -> Option<schema::Kernel> {
        self.get(path::KERNEL)
    }

    pub(crate) fn neighbors(&self) -> usize {
        match self.get::<schema::Neighbors>(path::NEIGHBORS) {
            Some(neighbors) => neighbors.neighbors.len(),
            None => self.ns.run("ip neigh").lines().count(),
        }
    }

    /// Packets received by each worker.
    pub(crate) fn workers(&self) -> Vec<u64> {
        let workers: schema::Workers = self.get(path::WORKERS).unwrap_or_default();
        workers.workers.iter().map(|worker| worker.packets).collect()
    }

    /// Memory in RAM, bytes.
    pub(crate) fn resident_bytes(&self) -> usize {
        let Some(process) = &self.process else { return 0 };
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// Adds a static route while the router runs.
    pub(crate) fn add_route(&self, prefix: &str, via: &str) {
        match &self.process {
            Some(process) => {
                let add = schema::RouteAdd {
                    prefix: prefix.into(),
                    via: vec![via.into()],
                    ..schema::RouteAdd::default()
                };
                let _: schema::Done = process.control.post(path::ROUTES, &add).unwrap();
            }
            None => drop(self.ns.run(&format!("ip route add {prefix} via {via}"))),
        }
    }

    /// Removes a static route.
    pub(crate) fn delete_route(&self, prefix: &str) {
        match &self.process {
            Some(process) => {
                let which = schema::RouteDelete { prefix: prefix.into(), vrf: None };
                let _: schema::Done = process.control.delete(path::ROUTES, &which).unwrap();
            }
            None => drop(self.ns.run(&format!("ip route del {prefix}"))),
        }
    }

    /// Writes another configuration and sends SIGHUP.
    pub(crate) fn reload(&self, config: &str) {
        let process = self.process.as_ref().unwrap();
        std::fs::write(process.folder.path().join(CONFIG), config).unwrap();
        process.signal(Signal::HUP);
    }

    /// How often a new configuration has been taken.
    pub(crate) fn reloads(&self) -> u64 {
        self.get::<schema::Summary>(path::SUMMARY).unwrap_or_default().reloads
    }

    /// What it has said so far.
    pub(crate) fn log(&self) -> String {
        self.process.as_ref().map(|process| process.read("log")).unwrap_or_default()
    }

    /// Stops it as an operator would and looks at its books: every packet is accounted for.
    pub(crate) fn stop(&mut self) -> Option<Value> {
        let mut process = self.process.take()?;
        process.signal(Signal::TERM);
        wait_until("Tidemill ends", Duration::from_secs(10), || process.child.try_wait().unwrap().is_some());
        let (status, out, log) = (process.child.wait().unwrap(), process.read("out"), process.read("log"));
        assert!(status.success(), "{status}: {log}");
        let line = out.lines().last().unwrap_or_else(|| panic!("no books: {log}"));
        let books: Value = serde_json::from_str(line).unwrap();
        let count = |name: &str| books[name].as_u64().unwrap_or_else(|| panic!("no {name:?}: {line}"));
        let dropped: u64 = books["dropped"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        let came = count("in") + count("made");
        assert_eq!(came, count("out") + dropped + count("consumed") + count("held"), "{line}");
        println!("books: in {} + made {}, dropped {}", books["in"], books["made"], books["dropped"]);
        Some(books)
    }

    /// What there is to know about it, after a failure.
    pub(crate) fn describe(&self) -> String {
        let mut text = self.ns.describe();
        if let Some(process) = &self.process {
            text +=
                &format!("--- log\n{}\n--- configuration\n{}\n", process.read("log"), process.read(CONFIG));
            for path in [path::SUMMARY, path::INTERFACES, path::NEIGHBORS, path::NEXT_HOPS, path::FIB] {
                let answer = process.control.get::<Value>(path, &());
                let answer = answer.map_or_else(|error| error.to_string(), |answer| answer.to_string());
                text += &format!("GET {path}: {}\n", answer.chars().take(4000).collect::<String>());
            }
        }
        text
    }
}

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
