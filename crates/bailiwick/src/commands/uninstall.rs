//! `bailiwick uninstall`: ends the daemon, removes what can be made anew, and says what stays.
//!
//! Promises: P10 (the log and its key stay unless a person says otherwise). Trust: what agents kept may hold anything;
//! it is removed without following a link. Projects are never touched.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::UninstallArgs;
use crate::failure::{Done, Failure};
use crate::link::Link;
use crate::places::{MACHINE_RULES, Place, Places};

/// Runs the command.
pub fn run(args: &UninstallArgs) -> Done {
    let places = Places::find()?;
    if let Some(link) = Link::to_any(&places)? {
        match link.tasks() {
            0 if args.dry_run => {}
            0 => link.stop(&places)?,
            tasks => {
                return Err(Failure::usage(format!("{tasks} tasks run")).hint(
                    "let them end, or end them: `bailiwick status` lists them, `bailiwick daemon stop` ends all",
                ));
            }
        }
    }
    let there: Vec<Place> = places.all().into_iter().filter(|place| is_there(&place.path)).collect();
    let (goes, stays): (Vec<Place>, Vec<Place>) = there.into_iter().partition(|place| {
        let own = !place.path.starts_with(MACHINE_RULES);
        own && (args.purge || place.anew)
    });
    for place in &goes {
        if !args.dry_run {
            remove(&place.path)?;
        }
    }
    if !args.dry_run {
        // Empty now, unless something stays in them.
        let sign_ins = places.sign_ins();
        let shared = sign_ins.parent().unwrap_or(&sign_ins);
        for folder in [places.state.as_path(), places.config.as_path(), shared] {
            let _ = std::fs::remove_dir(folder);
        }
    }
    if args.json {
        let list = |places: &[Place]| -> Vec<PathBuf> { places.iter().map(|place| place.path.clone()).collect() };
        tellln!(
            "{}",
            serde_json::json!({ "dry_run": args.dry_run, "removed": list(&goes), "kept": list(&stays) })
        );
        return Ok(ExitCode::SUCCESS);
    }
    let (does, keeps) = if args.dry_run {
        ("would remove", "would keep")
    } else {
        ("removed", "kept")
    };
    for (word, places) in [(does, &goes), (keeps, &stays)] {
        for place in places {
            tellln!("{word:<12}  {}  ({})", place.path.display(), place.what);
        }
    }
    if args.purge && !args.dry_run && is_there(&places.state) {
        talkln!(
            "`{}` stays: it holds what bailiwick did not make",
            places.state.display()
        );
    }
    if !stays.is_empty() && !args.purge {
        talkln!(
            "hint: `bailiwick uninstall --purge` removes your log, its key, your rules, logins and what agents kept, too"
        );
    }
    if let Ok(program) = std::env::current_exe() {
        talkln!("the program itself stays: `{}`", program.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn remove(path: &Path) -> Result<(), Failure> {
    let folder = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let removed = if folder {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    removed.map_err(|e| Failure::fault(format!("`{}` cannot be removed: {e}", path.display())))
}
