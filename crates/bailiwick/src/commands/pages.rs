//! `bailiwick completions` and `bailiwick man`: made from the command line as this build reads it.

use std::path::Path;
use std::process::ExitCode;

use clap::Command;

use crate::failure::{Done, Failure};

/// Prints what a shell needs to complete the command line.
pub fn completions(shell: clap_complete::Shell, mut command: Command) -> Done {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "bailiwick", &mut text);
    crate::talk::tell(&String::from_utf8_lossy(&text));
    Ok(ExitCode::SUCCESS)
}

/// Prints the manual page, or writes one page for each command into a folder.
pub fn man(folder: Option<&Path>, command: Command) -> Done {
    let Some(folder) = folder else {
        let mut text = Vec::new();
        let page = clap_mangen::Man::new(command).render(&mut text);
        page.map_err(|e| Failure::fault(format!("the page cannot be made: {e}")))?;
        crate::talk::tell(&String::from_utf8_lossy(&text));
        return Ok(ExitCode::SUCCESS);
    };
    let refuse = |e: std::io::Error| {
        Failure::usage(format!("the pages cannot be written to `{}`: {e}", folder.display()))
            .hint("name a folder that exists, such as ~/.local/share/man/man1")
    };
    clap_mangen::generate_to(command, folder).map_err(refuse)?;
    Ok(ExitCode::SUCCESS)
}
