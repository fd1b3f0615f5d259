//! What a context may have besides acts that the gates judge: ports seen outside, and devices.
//!
//! Promises: P2 (only a trusted project's file or the person's own command line gives them), P4 (a word that is not
//! known is an error).
//! Trust: the text of a rule file or of the command line. Not here: putting them up (`fence`, the daemon).

use std::fmt;
use std::str::FromStr;

/// A port inside the fence that is seen on the machine's loopback. Written `PORT`, or `OUTSIDE:INSIDE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Published {
    /// The port on 127.0.0.1 outside.
    pub outside: u16,
    /// The port on the loopback inside.
    pub inside: u16,
}

/// Says why a text names no port, or no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutwardFault(String);

impl FromStr for Published {
    type Err = OutwardFault;

    fn from_str(text: &str) -> Result<Self, OutwardFault> {
        let port = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|port| plain && *port > 0)
        };
        let (outside, inside) = text.split_once(':').unwrap_or((text, text));
        match (port(outside), port(inside)) {
            (Some(outside), Some(inside)) => Ok(Self { outside, inside }),
            _ => Err(OutwardFault(format!(
                "`{text}` is not a port: write `5173`, or `8080:3000` for port 3000 inside at 8080 outside"
            ))),
        }
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.outside == self.inside {
            write!(f, "{}", self.inside)
        } else {
            write!(f, "{}:{}", self.outside, self.inside)
        }
    }
}

/// A device of the machine: `gpu` for all that graphics and computing need, `wayland` for the compositor of the person's
/// screen, or one file below `/dev`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// Graphics cards and accelerators.
    Gpu,
    /// The compositor that draws the person's screen.
    Wayland,
    /// One device file.
    File(String),
}

/// What no task gets, by the beginning of its name below `/dev`: who has one has the machine, or types for the person.
const NEVER: [&str; 15] = [
    "mem", "kmem", "port", "kmsg", "console", "tty", "pts", "ptmx", "vcs", "input", "uinput", "uhid", "shm", "mqueue",
    "fd",
];

impl FromStr for Device {
    type Err = OutwardFault;

    fn from_str(text: &str) -> Result<Self, OutwardFault> {
        match text {
            "gpu" => return Ok(Self::Gpu),
            "wayland" => return Ok(Self::Wayland),
            "x11" | "X11" => {
                let why = "any program on an X server can read every window and type into it: use `wayland`";
                return Err(OutwardFault(format!("`{text}` is never granted: {why}")));
            }
            _ => {}
        }
        let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
        match text.strip_prefix("/dev/") {
            Some(rest) if NEVER.iter().any(|head| is_of(rest, head)) => Err(OutwardFault(format!(
                "`{text}` is never granted: who has it has the machine, its memory, screens or keyboards"
            ))),
            Some(rest) if rest.split('/').all(plain) => Ok(Self::File(text.into())),
            _ => Err(OutwardFault(format!(
                "`{text}` is not a device: write `gpu`, `wayland`, or a file below /dev such as `/dev/kvm`"
            ))),
        }
    }
}

/// True for a name, that name with a number, and what lies below it.
fn is_of(path: &str, head: &str) -> bool {
    path.strip_prefix(head).is_some_and(|rest| {
        let first = rest.split('/').next().unwrap_or_default();
        first.bytes().all(|byte| byte.is_ascii_digit()) || matches!(head, "tty" | "vcs")
    })
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpu => "gpu",
            Self::Wayland => "wayland",
            Self::File(path) => path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_number_or_two() {
        let port = |outside, inside| Ok(Published { outside, inside });
        assert_eq!("5173".parse(), port(5173, 5173));
        assert_eq!("8080:3000".parse(), port(8080, 3000));
        for wrong in [
            "",
            "0",
            "65536",
            "80:",
            ":80",
            "1:2:3",
            "+80",
            " 80",
            "127.0.0.1:80",
            "http",
        ] {
            assert!(wrong.parse::<Published>().is_err(), "{wrong}");
        }
        assert_eq!("8080:3000".parse::<Published>().unwrap().to_string(), "8080:3000");
        assert_eq!("80:80".parse::<Published>().unwrap().to_string(), "80");
    }

    #[test]
    fn p4_devices_are_files_below_dev() {
        assert_eq!("gpu".parse(), Ok(Device::Gpu));
        assert_eq!("/dev/dri/card0".parse(), Ok(Device::File("/dev/dri/card0".into())));
        for wrong in [
            "",
            "GPU",
            "/dev",
            "/dev/",
            "/dev/../etc/shadow",
            "kvm",
            "/etc/passwd",
            "/dev//x",
            "x11",
        ] {
            assert!(wrong.parse::<Device>().is_err(), "{wrong}");
        }
        for never in [
            "mem",
            "pts/0",
            "tty",
            "tty1",
            "ttyS0",
            "input/event3",
            "uinput",
            "vcsa1",
            "shm/x",
            "fd/0",
        ] {
            let told = format!("/dev/{never}").parse::<Device>().unwrap_err().to_string();
            assert!(told.contains("never granted"), "{told}");
        }
        for fine in ["memory-of-things", "kvm", "net/tun", "fuse", "inputs/x"] {
            assert!(format!("/dev/{fine}").parse::<Device>().is_ok(), "{fine}");
        }
    }
}
