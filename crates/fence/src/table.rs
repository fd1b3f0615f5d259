//! A set of system calls as a filter program that searches by halves.
//!
//! Promises: P13. The compiler that the other filters use compares with one call after the other. The kernel runs a
//! new filter once for every call there is, to know which it need not run for again: with 330 calls in the table that
//! took 1 ms at every start of a fence; searching by halves takes 30 µs.
//! See: seccomp(2), networking/filter in the kernel's documentation.

use std::collections::{BTreeMap, BTreeSet};

use seccompiler::{BpfProgram, TargetArch, sock_filter};

// Codes of the instructions: load a word of the call's data, jump if a bit is set, if equal, if
// not less, answer.
const LOAD: u16 = 0x20;
const ANY_BIT: u16 = 0x45;
const EQUAL: u16 = 0x15;
const NOT_LESS: u16 = 0x35;
const ANSWER: u16 = 0x06;
// Where in the call's data its number and the processor family stand.
const NUMBER: u32 = 0;
const FAMILY: u32 = 4;
/// Where the arguments begin, eight bytes each, of which the kernel reads the lower half of flags.
const ARGUMENTS: u32 = 16;
const LOWER_HALF: u32 = if cfg!(target_endian = "little") { 0 } else { 4 };

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const KILL: u32 = 0x8000_0000;

const fn step(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// What the kernel answers to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done.
    Allow,
    /// It waits for what the supervisor answers.
    Watch,
    /// It waits for the supervisor where an argument has one of these bits; else it is done.
    WatchIf(u8, u32),
    /// It fails with this error.
    Refuse(u16),
}

impl Answer {
    /// The last steps of a program that gives this answer.
    fn steps(self) -> BpfProgram {
        let answer = |code| step(ANSWER, code, 0, 0);
        match self {
            Self::Allow => vec![answer(ALLOW)],
            Self::Watch => vec![answer(NOTIFY)],
            Self::WatchIf(argument, bits) => {
                let place = u32::from(argument)
                    .saturating_mul(8)
                    .saturating_add(ARGUMENTS)
                    .saturating_add(LOWER_HALF);
                vec![
                    step(LOAD, place, 0, 0),
                    step(ANY_BIT, bits, 0, 1),
                    answer(NOTIFY),
                    answer(ALLOW),
                ]
            }
            Self::Refuse(errno) => vec![answer(ERRNO | u32::from(errno))],
        }
    }
}

/// The program that gives these answers, `other` to every other call, and ends a process that calls by another
/// processor family's numbers. None where the table is too long for one jump.
pub(crate) fn program(calls: &BTreeMap<u32, Answer>, other: Answer, machine: &TargetArch) -> Option<BpfProgram> {
    let family = match machine {
        TargetArch::x86_64 => 0xc000_003e,
        TargetArch::aarch64 => 0xc000_00b7,
        TargetArch::riscv64 => 0xc000_00f3,
    };
    let mut program = vec![
        step(LOAD, FAMILY, 0, 0),
        step(EQUAL, family, 1, 0),
        step(ANSWER, KILL, 0, 0),
        step(LOAD, NUMBER, 0, 0),
    ];
    program.extend(search(&borders(calls, other), other)?);
    Some(program)
}

/// Where the answer changes: from this number on, this answer.
fn borders(calls: &BTreeMap<u32, Answer>, other: Answer) -> Vec<(u32, Answer)> {
    let answer = |number: Option<u32>| number.and_then(|number| calls.get(&number).copied()).unwrap_or(other);
    let places: BTreeSet<u32> = calls.keys().flat_map(|call| [*call, call.saturating_add(1)]).collect();
    let changes = places
        .into_iter()
        .filter(|place| answer(Some(*place)) != answer(place.checked_sub(1)));
    changes.map(|place| (place, answer(Some(place)))).collect()
}

/// Searches among borders; `before` is the answer below the first of them.
fn search(borders: &[(u32, Answer)], before: Answer) -> Option<BpfProgram> {
    let middle = borders.len() / 2;
    let Some((number, from)) = borders.get(middle) else {
        return Some(before.steps());
    };
    let below = search(borders.get(..middle)?, before)?;
    let above = search(borders.get(middle.saturating_add(1)..)?, *from)?;
    let mut program = vec![step(NOT_LESS, *number, u8::try_from(below.len()).ok()?, 0)];
    program.extend(below);
    program.extend(above);
    Some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does; every argument is `argument`.
    fn answer(program: &BpfProgram, family: u32, number: u32, argument: u32) -> u32 {
        let (mut place, mut word) = (0, 0);
        loop {
            let now = &program[place];
            place += 1;
            match now.code {
                LOAD => {
                    word = match now.k {
                        NUMBER => number,
                        FAMILY => family,
                        _ => argument,
                    }
                }
                ANY_BIT => place += usize::from(if word & now.k != 0 { now.jt } else { now.jf }),
                EQUAL => place += usize::from(if word == now.k { now.jt } else { now.jf }),
                NOT_LESS => place += usize::from(if word >= now.k { now.jt } else { now.jf }),
                ANSWER => return now.k,
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn p13_a_table_answers_for_every_number() {
        let numbers = |calls: &[libc::c_long]| {
            calls
                .iter()
                .map(|call| u32::try_from(*call).unwrap())
                .collect::<Vec<_>>()
        };
        let mut calls = BTreeMap::new();
        for group in crate::syscalls::AGENT {
            calls.extend(numbers(group).into_iter().map(|call| (call, Answer::Allow)));
        }
        calls.extend(
            numbers(crate::syscalls::REFUSED)
                .into_iter()
                .map(|call| (call, Answer::Refuse(1))),
        );
        calls.insert(2, Answer::WatchIf(1, 0o103));
        let program = program(&calls, Answer::Refuse(38), &TargetArch::x86_64).unwrap();
        let code = |answer: Answer, argument: u32| match answer {
            Answer::WatchIf(_, bits) if argument & bits != 0 => NOTIFY,
            Answer::WatchIf(..) => ALLOW,
            other => other.steps()[0].k,
        };
        for number in (0..1200).chain([0x4000_0000, 0x4000_0027, u32::MAX]) {
            let want = calls.get(&number).copied().unwrap_or(Answer::Refuse(38));
            for argument in [0, 1, 0o100, 0o2000000] {
                let found = answer(&program, 0xc000_003e, number, argument);
                assert_eq!(found, code(want, argument), "{number} {argument}");
            }
        }
        assert_eq!(answer(&program, 0x4000_0003, 0, 0), KILL, "32-bit numbers");
    }
}
