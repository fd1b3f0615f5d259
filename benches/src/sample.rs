//! Generated projects to work on.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use bailiwick_testkit::Bailiwick;

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

/// A git repository with one committed file.
pub fn small_repository(folder: &Path) {
    std::fs::write(folder.join("one"), "one\n").expect("the project is writable");
    git(folder, &["init", "--quiet"]);
    git(folder, &["add", "."]);
    commit(folder, "one");
}

/// The large repository with a second branch, on which each file has another content.
pub fn two_branches(folder: &Path) {
    repository(folder);
    git(folder, &["branch", "--quiet", "-M", "main"]);
    git(folder, &["checkout", "--quiet", "-b", "other"]);
    for outer in 0..200 {
        for number in 0..100 {
            let file = folder.join(format!("d{outer:03}/f{number:02}.txt"));
            std::fs::write(file, format!("other {outer} {number}\n")).expect("the project is writable");
        }
    }
    git(folder, &["add", "."]);
    commit(folder, "other");
    git(folder, &["checkout", "--quiet", "main"]);
}

fn commit(folder: &Path, message: &str) {
    let who = ["-c", "user.name=t", "-c", "user.email=t@example.test"];
    git(
        folder,
        &[who.as_slice(), &["commit", "--quiet", "-m", message]].concat(),
    );
}

/// A program that makes one kind of call again and again.
pub fn calls(folder: &Path) {
    let source = folder.join("calls.c");
    std::fs::write(&source, include_str!("calls.c")).expect("the project is writable");
    let built = Command::new("gcc")
        .args(["-O1", "-o"])
        .arg(folder.join("calls"))
        .arg(&source)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "gcc failed");
}

/// A file of the home that is asked about, and a yes to it that lasts.
pub fn asked_file(kit: &mut Bailiwick) {
    calls(&kit.project());
    kit.write_home("asked/file", "some text\n");
    kit.write(
        "bailiwick.toml",
        "extends = [\"coding\"]\n[files]\nask = [\"~/asked\"]\n",
    );
    kit.run(&["trust"]).ok();
    kit.run(&["grants", "give", "read ~/asked/**", "--for", "1 h"]).ok();
}

/// A Rust program of 40 modules, without dependencies, and the machine's own toolchain, which may be read.
pub fn cargo_project(kit: &mut Bailiwick) {
    let folder = &kit.project();
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(sysroot.expect("there is a toolchain").stdout).expect("a path of letters");
    let sysroot = sysroot.trim();
    let path = std::env::var("PATH").unwrap_or_default();
    kit.set("PATH", &format!("{sysroot}/bin:{path}"));
    let rules = format!("extends = [\"coding\"]\n[files]\nread = [\"{sysroot}\"]\n");
    kit.write("bailiwick.toml", &rules);
    kit.run(&["trust"]).ok();
    let manifest = "[package]\nname = \"sample\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    std::fs::write(folder.join("Cargo.toml"), manifest).expect("the project is writable");
    std::fs::create_dir(folder.join("src")).expect("the project is writable");
    let mut main = String::new();
    let mut sum = String::new();
    for number in 0..40 {
        let mut text = String::new();
        for step in 0..20 {
            let _ = writeln!(
                text,
                "pub fn step_{step}(x: u64) -> String {{ let all: Vec<u64> = (0..x).map(|n| n * {step}).collect(); format!(\"{{all:?}}\") }}"
            );
        }
        std::fs::write(folder.join(format!("src/part_{number}.rs")), text).expect("the project is writable");
        let _ = writeln!(main, "mod part_{number};");
        let _ = writeln!(sum, "    println!(\"{{}}\", part_{number}::step_3(3).len());");
    }
    let _ = writeln!(main, "#![allow(dead_code)]");
    let main = format!(
        "#![allow(dead_code)]\n{}fn main() {{\n{sum}}}\n",
        main.replace("#![allow(dead_code)]\n", "")
    );
    std::fs::write(folder.join("src/main.rs"), main).expect("the project is writable");
}

/// A Node project whose 40 packages of 100 files each lie beside it as archives.
pub fn npm_project(folder: &Path) {
    let mut dependencies = Vec::new();
    for number in 0..40 {
        let name = format!("p{number:02}");
        let package = folder.join("made").join("package");
        std::fs::create_dir_all(&package).expect("the project is writable");
        let manifest = format!("{{\"name\": \"{name}\", \"version\": \"1.0.0\"}}");
        std::fs::write(package.join("package.json"), manifest).expect("the project is writable");
        for file in 0..100 {
            let text = format!("module.exports = {number} + {file};\n");
            std::fs::write(package.join(format!("f{file:02}.js")), text).expect("the project is writable");
        }
        let archive = folder.join(format!("{name}.tgz"));
        let packed = Command::new("tar")
            .arg("-czf")
            .arg(&archive)
            .arg("-C")
            .arg(folder.join("made"))
            .arg("package")
            .status();
        assert!(packed.is_ok_and(|status| status.success()), "tar failed");
        dependencies.push(format!("\"{name}\": \"file:{name}.tgz\""));
    }
    std::fs::remove_dir_all(folder.join("made")).expect("the project is writable");
    let manifest = format!(
        "{{\"name\": \"sample\", \"version\": \"1.0.0\", \"dependencies\": {{{}}}}}",
        dependencies.join(", ")
    );
    std::fs::write(folder.join("package.json"), manifest).expect("the project is writable");
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
