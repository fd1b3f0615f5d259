//! One option of a grammar, as its table writes it: `-o --output=write`, `-r -R --recursive`, `--delete !write`.
//!
//! Names come first, the usual one being the first long one. `=ROLE`: it has a value. `=?ROLE`: it may have one, written
//! onto it. `!ROLE`: what it does. `-#` is a number written as an option, as in `head -3`.

/// What a value or an operand is, or what an option does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Neither a file nor a host.
    Text,
    /// A file or folder that is read.
    Read,
    /// A file or folder that is changed.
    Write,
    /// A program that is started.
    Start,
    /// A host or address.
    Contact,
    /// Settings that may do any of these.
    Steer,
    /// Words up to `;` or `+` are a command that is started.
    Command,
    /// A text that is cut into words, which are a command.
    Split,
    /// A text that a shell is given, or a program with its words.
    Line,
    /// The name of a module, which is a program.
    Module,
    /// A text in the program's own language.
    Code,
}

impl Role {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "text" => Self::Text,
            "read" => Self::Read,
            "write" => Self::Write,
            "start" => Self::Start,
            "contact" => Self::Contact,
            "steer" => Self::Steer,
            "command" => Self::Command,
            "split" => Self::Split,
            "line" => Self::Line,
            "module" => Self::Module,
            "code" => Self::Code,
            _ => return None,
        })
    }

    /// True where nothing but reading happens.
    pub(crate) fn only_reads(self) -> bool {
        matches!(self, Self::Text | Self::Read)
    }
}

/// Whether an option has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    None,
    /// Attached or in the next word.
    Needed(Role),
    /// Attached, or none.
    Attached(Role),
}

/// One option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opt {
    /// The usual name first.
    pub names: Vec<String>,
    pub value: Value,
    pub does: Option<Role>,
    /// True for options whose names are whole words behind one dash.
    pub number: bool,
}

impl Opt {
    /// Reads one option of a table. The error is what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("`{text}` is no option: {what}");
        let mut opt = Self {
            names: Vec::new(),
            value: Value::None,
            does: None,
            number: false,
        };
        for word in text.split_whitespace() {
            if let Some(role) = word.strip_prefix('!') {
                opt.does = Some(Role::parse(role).ok_or_else(|| wrong("no such role"))?);
                continue;
            }
            let (name, value) = word
                .split_once('=')
                .map_or((word, None), |(name, value)| (name, Some(value)));
            if !name.starts_with('-') || name.len() < 2 {
                return Err(wrong("a name begins with `-`"));
            }
            opt.number |= name == "-#";
            opt.names.push(name.to_owned());
            if let Some(value) = value {
                let (role, attached) = value.strip_prefix('?').map_or((value, false), |role| (role, true));
                let role = Role::parse(role).ok_or_else(|| wrong("no such role"))?;
                opt.value = if attached {
                    Value::Attached(role)
                } else {
                    Value::Needed(role)
                };
            }
        }
        // The usual name is the first long one.
        if let Some(place) = opt.names.iter().position(|name| name.starts_with("--")) {
            opt.names.swap(0, place);
        }
        if opt.names.is_empty() {
            Err(wrong("it has no name"))
        } else {
            Ok(opt)
        }
    }

    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_tables_write_them() {
        let opt = Opt::parse("-o --output=write").unwrap();
        assert_eq!(
            (opt.names, opt.value),
            (vec!["--output".into(), "-o".into()], Value::Needed(Role::Write))
        );
        let opt = Opt::parse("--color=?text").unwrap();
        assert_eq!(opt.value, Value::Attached(Role::Text));
        assert_eq!(Opt::parse("-delete !write").unwrap().does, Some(Role::Write));
        for bad in ["", "x", "-", "-x=what", "-x !what"] {
            assert!(Opt::parse(bad).is_err(), "{bad}");
        }
    }
}
