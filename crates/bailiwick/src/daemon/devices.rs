//! Devices and the compositor of the person's screen, where they are granted: what is shown of them, and what it weakens.
//!
//! Promises: P2 (only what the person's command line or a trusted file names, and what their account may use), P13 (what
//! each weakens is said before the start). Trust: names come from the person; what lies there is looked at, not opened.
//! Not here: showing it inside (`bailiwick_fence`), which words name a device (`bailiwick_policy`).

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use bailiwick_gate::{Bind, BindMode, LaunchFault};
use bailiwick_model::{AbsPath, Code};
use bailiwick_policy::Device;

/// What graphics and computing need below `/dev`: names, or heads of names with a final `*`.
const GPU: [&str; 4] = ["dri", "kfd", "nvidia*", "dxg"];

/// Where programs look up which card is which (sysfs(5)). Read-only.
const GPU_FACTS: [&str; 4] = ["/sys/class/drm", "/sys/dev/char", "/sys/devices", "/sys/bus/pci"];

/// Something of the machine that is shown beside trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Where it lies, outside and inside.
    path: AbsPath,
    /// True for a socket of the person's own.
    socket: bool,
}

impl Shown {
    /// How the fence shows it.
    pub fn bind(&self) -> Bind {
        Bind {
            source: self.path.clone(),
            target: self.path.clone(),
            mode: BindMode::Read,
            own: self.socket,
            optional: false,
        }
    }
}

/// What is granted, all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Granted {
    /// What is shown.
    pub shown: Vec<Shown>,
    /// Variables that say where it is.
    pub variables: Vec<(String, String)>,
    /// What each is and what it weakens, one line each.
    pub told: Vec<String>,
}

fn fault(what: String, cause: &str, hint: &str) -> LaunchFault {
    LaunchFault {
        code: Code::DeviceRefused,
        what,
        cause: cause.into(),
        hint: hint.into(),
    }
}

/// Finds what is granted on this machine. `environment` is the person's.
pub fn find(devices: &[Device], environment: &[(String, String)]) -> Result<Granted, LaunchFault> {
    let mut all = Granted::default();
    let mut devices = devices.to_vec();
    devices.sort();
    devices.dedup();
    for device in &devices {
        match device {
            Device::Gpu => all.gpu()?,
            Device::Wayland => all.wayland(environment)?,
            Device::File(path) => all.file(path)?,
        }
    }
    Ok(all)
}

impl Granted {
    /// Adds what is shown to the parts of the fence that go on record.
    pub fn on_record(&self, mut parts: Vec<String>) -> Vec<String> {
        parts.extend(self.shown.iter().map(|shown| format!("shows {}", shown.path)));
        parts
    }

    fn show(&mut self, path: &Path, socket: bool) {
        if let Ok(path) = AbsPath::new(path) {
            self.shown.push(Shown { path, socket });
        }
    }

    fn gpu(&mut self) -> Result<(), LaunchFault> {
        let entries = std::fs::read_dir("/dev").map(|entries| entries.flatten().collect::<Vec<_>>());
        let mut found: Vec<PathBuf> = entries
            .unwrap_or_default()
            .into_iter()
            .filter(|entry| entry.file_name().to_str().is_some_and(is_gpu))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        if found.is_empty() {
            return Err(fault(
                "`gpu` cannot be shown inside".into(),
                "this machine has no graphics card that programs can use",
                "take `gpu` out of the devices",
            ));
        }
        found.iter().for_each(|path| self.show(path, false));
        let facts = GPU_FACTS.iter().map(Path::new).filter(|path| path.exists());
        facts.for_each(|path| self.show(path, false));
        self.told.push(
            "gpu: its driver is a large part of the kernel, a card's memory may hold what other programs left there, and the machine's \
             hardware can be read"
                .into(),
        );
        Ok(())
    }

    fn file(&mut self, path: &str) -> Result<(), LaunchFault> {
        let refuse = |cause: &str, hint: &str| Err(fault(format!("`{path}` cannot be shown inside"), cause, hint));
        let kind = match Path::new(path).symlink_metadata() {
            Ok(found) => found.file_type(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return refuse("this machine has no such device", "take it out of the devices");
            }
            Err(e) => return refuse(&e.to_string(), ""),
        };
        if kind.is_block_device() {
            return refuse(
                "it is a disk: who reads it reads everybody's files, past all rules",
                "grant folders",
            );
        }
        if !kind.is_char_device() {
            return refuse("it is no device file", "name the device file itself");
        }
        self.show(Path::new(path), false);
        self.told.push(format!("{path}: {}", weakens(path)));
        Ok(())
    }

    fn wayland(&mut self, environment: &[(String, String)]) -> Result<(), LaunchFault> {
        let of = |name: &str| {
            let found = environment.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        let display = of("WAYLAND_DISPLAY").unwrap_or("wayland-0");
        let path = match (display.starts_with('/'), of("XDG_RUNTIME_DIR")) {
            (true, _) => PathBuf::from(display),
            (false, Some(folder)) => Path::new(folder).join(display),
            (false, None) => {
                return Err(fault(
                    "the compositor cannot be shown inside".into(),
                    "neither WAYLAND_DISPLAY nor XDG_RUNTIME_DIR says where it is",
                    "start this from a terminal in a Wayland session",
                ));
            }
        };
        let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
        if !is_socket {
            return Err(fault(
                format!("the compositor cannot be shown inside: `{}`", path.display()),
                "no socket lies there",
                "start this from a terminal in a Wayland session; X11 is never shown, since any program there can read and type into every window",
            ));
        }
        self.show(&path, true);
        self.variables
            .push(("WAYLAND_DISPLAY".into(), path.display().to_string()));
        self.told.push(
            "wayland: it can draw windows that look like others, read and set the clipboard while it has the focus, and with some compositors \
             take pictures of the screen"
                .into(),
        );
        Ok(())
    }
}

fn is_gpu(name: &str) -> bool {
    GPU.iter().any(|known| match known.strip_suffix('*') {
        Some(head) => name.starts_with(head),
        None => name == *known,
    })
}

fn weakens(path: &str) -> &'static str {
    match path {
        "/dev/kvm" => "it can run virtual machines: a large part of the kernel more is in its reach",
        "/dev/net/tun" => "it can use a network device that somebody made for it, past the network gate",
        "/dev/fuse" => "it serves nothing without a mount, which is not possible in there",
        _ if path.starts_with("/dev/snd/") => "it can listen with the microphone",
        _ if path.starts_with("/dev/video") => "it can look with the camera",
        _ if path.starts_with("/dev/hidraw") => "it can ask a security key to sign, and hear some keyboards",
        _ => "what its driver lets a program do is outside of the fence, and of all rules",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_device_is_refused() {
        for (path, why) in [
            ("/dev/bailiwick-missing", "no such device"),
            ("/dev/fd", "no device file"),
            ("/dev/shm", "no device file"),
        ] {
            let told = find(&[Device::File(path.into())], &[]).unwrap_err();
            assert!(told.cause.contains(why), "{path}: {told}");
        }
        let found = find(
            &[Device::File("/dev/null".into()), Device::File("/dev/null".into())],
            &[],
        )
        .unwrap();
        assert_eq!((found.shown.len(), found.told.len()), (1, 1));
    }

    #[test]
    fn graphics_cards_are_known_by_name() {
        for (name, gpu) in [
            ("dri", true),
            ("kfd", true),
            ("nvidia0", true),
            ("nvidiactl", true),
            ("drivers", false),
            ("sda", false),
        ] {
            assert_eq!(is_gpu(name), gpu, "{name}");
        }
    }

    #[test]
    fn the_compositor_is_where_the_session_says() {
        let room = tempfile::tempdir().unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(room.path().join("wayland-7")).unwrap();
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let folder = room.path().to_str().unwrap();
        let found = find(
            &[Device::Wayland],
            &[set("XDG_RUNTIME_DIR", folder), set("WAYLAND_DISPLAY", "wayland-7")],
        )
        .unwrap();
        assert_eq!(
            found.variables,
            [set("WAYLAND_DISPLAY", &format!("{folder}/wayland-7"))]
        );
        for wrong in [vec![], vec![set("XDG_RUNTIME_DIR", folder)]] {
            assert!(find(&[Device::Wayland], &wrong).is_err());
        }
    }
}
