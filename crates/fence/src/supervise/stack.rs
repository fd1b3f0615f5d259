//! What the kernel lays on the stack of a new program: its words, its variables, and the name that it was called by.
//!
//! Answers: with what has a program begun? It is read while the program stands before its first instruction, from its own memory in
//! one piece, as the kernel laid it down a moment ago: there is no other thread yet that could have changed it.
//! Promises: P4 (what does not read as the kernel lays it down is nothing), P5.
//! Trust: the texts are the agent's. Not here: whether it is what was judged (`start`).
//! See: execve(2), getauxval(3); `create_elf_tables` in the kernel's `fs/binfmt_elf.c`.

use rustix::io::Errno;

use crate::sys::notify;

/// What is read at first: more than the words and variables of most take.
const FIRST_LOOK: usize = 16 * 1024;
/// The most that the kernel lays down for a program, with room for what is no text (`_STK_LIM` in its `fs/exec.c`).
const MOST: usize = 8 * 1024 * 1024;
/// Where the name that a program was called by stands among what the kernel tells it besides (getauxval(3)).
const CALLED: u64 = 31;

/// What a program begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Laid {
    /// The name that it was called by.
    pub called: Vec<u8>,
    /// Its words.
    pub words: Vec<Vec<u8>>,
    /// Its variables.
    pub variables: Vec<Vec<u8>>,
}

impl Laid {
    /// What lies at `at` in the process's memory.
    pub(super) fn of(process: i32, at: u64) -> Result<Self, Errno> {
        let mut bytes = vec![0; FIRST_LOOK];
        let mut got = notify::read_memory(process, at, &mut bytes).map_err(|_| Errno::SRCH)?;
        if got == FIRST_LOOK {
            // Longer than most: all that may be there.
            bytes.resize(MOST, 0);
            got = notify::read_memory(process, at, &mut bytes).map_err(|_| Errno::SRCH)?;
        }
        Self::read(at, bytes.get(..got).unwrap_or_default()).ok_or(Errno::NOEXEC)
    }

    /// Reads the piece of memory that begins at `at`. None where it is not what the kernel lays down for this machine's programs.
    fn read(at: u64, bytes: &[u8]) -> Option<Self> {
        let mut numbers = bytes
            .chunks_exact(8)
            .map(|eight| u64::from_ne_bytes(<[u8; 8]>::try_from(eight).unwrap_or_default()));
        let text = |address: u64| -> Option<Vec<u8>> {
            let from = bytes.get(usize::try_from(address.checked_sub(at)?).ok()?..)?;
            let end = from.iter().position(|byte| *byte == 0)?;
            from.get(..end).map(<[u8]>::to_vec)
        };
        let count = usize::try_from(numbers.next()?).ok()?;
        let mut words = Vec::new();
        for _ in 0..count {
            words.push(text(numbers.next()?)?);
        }
        if numbers.next()? != 0 {
            return None;
        }
        let mut variables = Vec::new();
        loop {
            match numbers.next()? {
                0 => break,
                address => variables.push(text(address)?),
            }
        }
        let mut called = None;
        loop {
            match (numbers.next()?, numbers.next()?) {
                (0, _) => break,
                (CALLED, address) => called = Some(text(address)?),
                _ => {}
            }
        }
        Some(Self {
            called: called?,
            words,
            variables,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel lays down at `at`, with the texts behind the numbers.
    fn laid(at: u64, words: &[&str], variables: &[&str], called: &str) -> Vec<u8> {
        let numbers = 1 + words.len() + 1 + variables.len() + 1 + 4;
        let mut next = at + 8 * numbers as u64;
        let mut texts = Vec::new();
        let mut place = |text: &str| {
            let here = next;
            texts.extend_from_slice(text.as_bytes());
            texts.push(0);
            next = at + 8 * numbers as u64 + texts.len() as u64;
            here
        };
        let mut all = vec![words.len() as u64];
        all.extend(words.iter().map(|word| place(word)));
        all.push(0);
        all.extend(variables.iter().map(|variable| place(variable)));
        all.push(0);
        all.extend([CALLED, place(called), 0, 0]);
        all.iter()
            .flat_map(|number| number.to_ne_bytes())
            .chain(texts)
            .collect()
    }

    #[test]
    fn what_the_kernel_tells_a_program_is_read_from_its_stack() {
        let bytes = laid(0x7000, &["git", "", "push"], &["A=1", "B="], "/usr/bin/git");
        let laid = Laid::read(0x7000, &bytes).unwrap();
        assert_eq!(laid.words, [b"git".to_vec(), Vec::new(), b"push".to_vec()]);
        assert_eq!(laid.variables, [b"A=1".to_vec(), b"B=".to_vec()]);
        assert_eq!(laid.called, b"/usr/bin/git");
        // A text that lies elsewhere, or does not end, is nothing that the kernel laid down.
        assert_eq!(Laid::read(0x8000, &bytes), None);
        assert_eq!(Laid::read(0x7000, bytes.get(..bytes.len() - 1).unwrap()), None);
    }

    proptest::proptest! {
        #[test]
        fn p4_any_memory_is_read_or_not(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let _ = Laid::read(0, &bytes);
        }
    }
}
