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
                "`{text}` is not a port: write `5173`, or `8080:80` for port 80 inside at 8080 outside"
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

/// A device of the machine: `gpu` for all that graphics and computing need, or one file below `/dev`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// Graphics cards and accelerators.
    Gpu,
    /// One device file.
    File(String),
}

/// Device files that no task gets: who has one has the machine.
const NEVER: [&str; 5] = ["/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/console"];

impl FromStr for Device {
    type Err = OutwardFault;

    fn from_str(text: &str) -> Result<Self, OutwardFault> {
        if text == "gpu" {
            return Ok(Self::Gpu);
        }
        let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
        match text.strip_prefix("/dev/") {
            Some(_) if NEVER.contains(&text) => Err(OutwardFault(format!(
                "`{text}` is never granted: who has it has the machine"
            ))),
            Some(rest) if rest.split('/').all(plain) => Ok(Self::File(text.into())),
            _ => Err(OutwardFault(format!(
                "`{text}` is not a device: write `gpu`, or a file below /dev such as `/dev/kvm`"
            ))),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpu => "gpu",
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
        assert_eq!("8080:80".parse(), port(8080, 80));
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
        assert_eq!("8080:80".parse::<Published>().unwrap().to_string(), "8080:80");
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
            "/dev/mem",
            "kvm",
            "/etc/passwd",
            "/dev//x",
        ] {
            assert!(wrong.parse::<Device>().is_err(), "{wrong}");
        }
    }
}
