//! The levels of the fence, and what each of them is known not to hold.

/// One level.
#[derive(Debug)]
pub struct Level {
    /// Its name.
    pub name: &'static str,
    /// How `run` is asked for it.
    pub arguments: &'static [&'static str],
    /// True when root's fences can be of it.
    pub for_root: bool,
    /// True when it can be put up in a container as engines make them.
    pub in_containers: bool,
    /// Attempts that it does not hold yet, and what they wait for. One that is held must go from here.
    pub pending: &'static [(&'static str, &'static str)],
}

/// What is guarded stays guarded where its folder goes; in that folder's place a new one can be made, without it.
const MOVED: &str = "a choice: folders above a guarded place may be renamed, and it goes along";

/// A tunnel rule that names another port than 443 is for any service: what it speaks is not looked at, and these attempts have a
/// server on such a port. On port 443 the gate's own tests try them.
const ANY_SERVICE: &str = "a choice: a tunnel to a named port other than 443 needs no greeting";

/// What no level holds, by choice.
const CHOSEN: &[(&str, &str)] = &[
    ("guarded-nested-parent-swapped", MOVED),
    ("crooked-greeting-after-plain-text", ANY_SERVICE),
    ("crooked-greeting-old", ANY_SERVICE),
    ("proxy-tunnel-login-greeting", ANY_SERVICE),
    ("proxy-tunnel-plain-request", ANY_SERVICE),
    ("proxy-tunnel-plain-text", ANY_SERVICE),
];

/// The levels that are tried.
pub const LEVELS: &[Level] = &[
    Level {
        name: "process",
        arguments: &["--level", "process"],
        for_root: false,
        in_containers: true,
        pending: CHOSEN,
    },
    Level {
        name: "namespace",
        arguments: &[],
        for_root: true,
        in_containers: false,
        pending: CHOSEN,
    },
];
