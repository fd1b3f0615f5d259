//! Variables that steer programs: they are part of the command.
//!
//! Promises: P5 (a variable that names a program, a library or settings is part of the act). What the task began with is
//! no steering, nor is a value that does nothing of its kind, such as `PAGER=cat`.

use std::collections::HashMap;

use crate::grammar::{Program, fits};

/// Variables that the loader and the C library obey, whatever the program is.
const EVERY: &[&str] = &[
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "LD_ORIGIN_PATH",
    "LD_PROFILE*",
    "LD_DEBUG_OUTPUT",
    "LD_USE_LOAD_BIAS",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "MALLOC_CONF",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "OPENSSL_ENGINES",
    "LOCPATH",
    "NLSPATH",
    "TERMINFO",
    "TERMINFO_DIRS",
];

/// Variables of interpreters: any program may be a script of one.
const INTERPRETERS: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "BASH_FUNC_*",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "ZDOTDIR",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONWARNINGS",
    "PYTHONBREAKPOINT",
    "PYTHONUSERBASE",
    "PYTHONPLATLIBDIR",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "PERL5LIB",
    "PERL5OPT",
    "PERL5DB",
    "PERLLIB",
    "RUBYOPT",
    "RUBYLIB",
    "GEM_PATH",
    "GEM_HOME",
    "BUNDLE_GEMFILE",
    "LUA_INIT*",
    "LUA_PATH*",
    "LUA_CPATH*",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "DENO_DIR",
    "BUN_OPTIONS",
];

/// Programs that do nothing but pass on, end or print.
const IDLE: &[&str] = &[
    "",
    ":",
    "true",
    "/bin/true",
    "/usr/bin/true",
    "cat",
    "/bin/cat",
    "/usr/bin/cat",
];

/// Variables whose value is a program: one that does nothing steers nothing.
const PROGRAMS: &[&str] = &[
    "PAGER",
    "GIT_PAGER",
    "MANPAGER",
    "GH_PAGER",
    "SYSTEMD_PAGER",
    "EDITOR",
    "VISUAL",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
    "BROWSER",
    "RUSTC_WRAPPER",
    "GIT_EXTERNAL_DIFF",
];

/// Of the variables, those that steer this program and are not as the task began with them.
pub(crate) fn steering(
    program: Option<&Program>,
    variables: &[(String, String)],
    base: &HashMap<String, String>,
) -> Vec<(String, String)> {
    let listed = |list: &[&str], name: &str| list.iter().any(|own| fits(own, name));
    let obeys = |name: &str| match program {
        Some(program) => listed(EVERY, name) || program.variables.iter().any(|own| own_fits(own, name)),
        None => listed(EVERY, name) || listed(INTERPRETERS, name),
    };
    let idle = |name: &str, value: &str| {
        value.is_empty() && !name.starts_with("GIT_CONFIG")
            || listed(PROGRAMS, name) && IDLE.contains(&value)
            || name == "GIT_CONFIG_COUNT" && value == "0"
    };
    let mut found: Vec<(String, String)> = variables
        .iter()
        .filter(|(name, value)| obeys(name) && base.get(name) != Some(value) && !idle(name, value))
        .cloned()
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// `@interpreters` in a table stands for all of them.
fn own_fits(own: &str, name: &str) -> bool {
    match own {
        "@interpreters" => INTERPRETERS.iter().any(|own| fits(own, name)),
        _ => fits(own, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_only_what_changes_and_does_something_steers() {
        let base = HashMap::from([("LD_PRELOAD".to_owned(), "/usr/lib/own.so".to_owned())]);
        let set = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let git = Program {
            variables: vec!["GIT_PAGER".into(), "GIT_CONFIG_*".into()],
            ..Program::default()
        };
        for (variables, program, steers) in [
            (set("LD_PRELOAD", "/usr/lib/own.so"), Some(&git), false),
            (set("LD_PRELOAD", "./x.so"), Some(&git), true),
            (set("GIT_PAGER", "./x"), Some(&git), true),
            (set("GIT_PAGER", "cat"), Some(&git), false),
            (set("GIT_PAGER", ""), Some(&git), false),
            (set("GIT_CONFIG_COUNT", "1"), Some(&git), true),
            (set("GIT_CONFIG_KEY_0", ""), Some(&git), true),
            (set("PYTHONPATH", "x"), Some(&git), false),
            (set("PYTHONPATH", "x"), None, true),
            (set("TZ", "UTC"), None, false),
        ] {
            assert_eq!(
                !steering(program, &variables, &base).is_empty(),
                steers,
                "{variables:?}"
            );
        }
    }
}
