//! Generated projects to work on.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// A git repository with 20,000 committed files in 200 folders; one file in ten holds the word `needle`.
pub fn repository(folder: &Path) {
    for outer in 0..200 {
        let inner = folder.join(format!("d{outer:03}"));
        std::fs::create_dir(&inner).expect("the project is writable");
        for number in 0..100 {
            let word = if number % 10 == 0 { "needle" } else { "hay" };
            let text = format!("{word} {outer} {number}\n").repeat(20);
            std::fs::write(inner.join(format!("f{number:02}.txt")), text).expect("the project is writable");
        }
    }
    git(folder, &["init", "--quiet"]);
    git(folder, &["add", "."]);
    git(
        folder,
        &[
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.test",
            "commit",
            "--quiet",
            "-m",
            "all",
        ],
    );
    git(folder, &["status", "--porcelain"]);
}

fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git").current_dir(folder).args(arguments).status();
    assert!(status.is_ok_and(|status| status.success()), "git {arguments:?} failed");
}

/// A C program of 60 files that each include a shared header.
pub fn c_project(folder: &Path) {
    let mut header = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    let mut sum = String::from("#include \"all.h\"\nint main(void) {\n  int sum = 0;\n");
    for number in 0..59 {
        let _ = writeln!(header, "int part_{number}(int x);");
        let _ = writeln!(sum, "  sum += part_{number}({number});");
        let mut text = String::from("#include \"all.h\"\n");
        for step in 0..20 {
            let _ = writeln!(
                text,
                "static int step_{step}(int x) {{ char b[64]; snprintf(b, sizeof b, \"%d\", x); return atoi(b) + {step}; }}"
            );
        }
        let steps: Vec<String> = (0..20).map(|step| format!("step_{step}(x)")).collect();
        let _ = writeln!(text, "int part_{number}(int x) {{ return {}; }}", steps.join(" + "));
        std::fs::write(folder.join(format!("part_{number:02}.c")), text).expect("the project is writable");
    }
    sum.push_str("  return sum > 0 ? 0 : 1;\n}\n");
    std::fs::write(folder.join("all.h"), header).expect("the project is writable");
    std::fs::write(folder.join("main.c"), sum).expect("the project is writable");
}
