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

/// The levels that are tried.
pub const LEVELS: &[Level] = &[
    Level {
        name: "process",
        arguments: &["--level", "process"],
        for_root: false,
        in_containers: true,
        pending: &[("guarded-nested-parent-swapped", MOVED)],
    },
    Level {
        name: "namespace",
        arguments: &[],
        for_root: true,
        in_containers: false,
        pending: &[("guarded-nested-parent-swapped", MOVED)],
    },
];
