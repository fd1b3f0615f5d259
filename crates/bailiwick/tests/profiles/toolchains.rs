//! Projects of several languages, built and tested inside with nothing but the preset. What they depend on lies beside
//! them; with registries in reach, it is fetched from there too.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use bailiwick_testkit::{Bailiwick, registries, skip};

use crate::kits;

/// A Rust toolchain's own folder, if the user of the kit can run it; with rustup that is not where `cargo` lies.
fn rust(kit: &Bailiwick) -> Option<PathBuf> {
    let found = Command::new("rustc")
        .args(["--print", "sysroot"])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let folder = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim());
    let cargo = folder.join("bin/cargo");
    let works = kit.shell_outside(&format!("{} --version", cargo.display()));
    (works.status == 0).then_some(folder)
}

fn trust(kit: &Bailiwick, rules: &str) {
    kit.write("bailiwick.toml", rules);
    kit.run(&["trust"]).ok();
}

#[test]
fn a_rust_project_is_built_and_tested_inside() {
    for kit in kits() {
        let Some(toolchain) = rust(&kit) else {
            skip("this user has no Rust toolchain");
            continue;
        };
        kit.write("Cargo.toml", "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ndep = { path = \"dep\" }\n");
        kit.write(
            "src/lib.rs",
            "#[test]\nfn adds() {\n    assert_eq!(dep::two(), 2);\n}\n",
        );
        kit.write(
            "build.rs",
            "fn main() {\n    println!(\"cargo::rerun-if-changed=build.rs\");\n}\n",
        );
        kit.write(
            "dep/Cargo.toml",
            "[package]\nname = \"dep\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        );
        kit.write("dep/src/lib.rs", "pub fn two() -> u32 {\n    2\n}\n");
        // The toolchain lies in another home than the kit's.
        let rules = format!(
            "extends = [\"coding\"]\n[files]\nread = [\"{}\"]\n",
            toolchain.display()
        );
        trust(&kit, &rules);
        let line = format!("PATH={}/bin:$PATH cargo test", toolchain.display());
        let done = kit.shell(&line).ok();
        assert!(done.stdout.contains("test adds ... ok"), "{done:?}");
        assert!(kit.project().join("target/debug").is_dir());
        assert!(!kit.home().join(".cargo").exists(), "nothing of it is the person's");
        let Some(private) = registries(&["index.crates.io", "static.crates.io"]) else {
            skip("crates.io is out of reach");
            continue;
        };
        trust(&kit, &format!("{rules}[network]\nprivate = {private}\n"));
        kit.shell_outside("echo 'itoa = \"1\"' >> Cargo.toml && rm -f Cargo.lock")
            .ok();
        kit.shell(&line).ok();
        assert!(!kit.home().join(".cargo").exists());
        // What was fetched is kept: the next build needs no network.
        kit.shell_outside("rm -rf target").ok();
        kit.shell(&line.replace("cargo test", "cargo --offline test")).ok();
    }
}

#[test]
fn a_node_project_is_built_and_tested_inside() {
    for kit in kits() {
        kit.write("package.json", "{\"name\": \"app\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node test.js\"}, \"dependencies\": {\"dep\": \"file:./dep\"}}\n");
        kit.write(
            "test.js",
            "require(\"assert\").equal(require(\"dep\"), 2);\nconsole.log(\"tests pass\");\n",
        );
        kit.write(
            "dep/package.json",
            "{\"name\": \"dep\", \"version\": \"1.0.0\", \"main\": \"index.js\"}\n",
        );
        kit.write("dep/index.js", "module.exports = 2;\n");
        let done = kit.shell("npm install --no-audit --no-fund && npm test").ok();
        assert!(done.stdout.contains("tests pass"), "{done:?}");
        assert!(!kit.home().join(".npm").exists(), "nothing of it is the person's");
        let Some(private) = registries(&["registry.npmjs.org"]) else {
            skip("the registry of npm is out of reach");
            continue;
        };
        trust(
            &kit,
            &format!("extends = [\"coding\"]\n[network]\nprivate = {private}\n"),
        );
        let done = kit
            .shell("npm install --no-audit --no-fund ms@2.1.3 && node -e 'console.log(require(\"ms\")(\"1s\"))'")
            .ok();
        assert!(done.stdout.contains("1000"), "{done:?}");
        kit.shell("rm -rf node_modules && npm install --no-audit --no-fund --offline")
            .ok();
        assert!(!kit.home().join(".npm").exists());
    }
}

/// Makes a wheel beside the project: what a person would have downloaded.
const WHEEL: &str = "import zipfile\nz = zipfile.ZipFile('dep-1-py3-none-any.whl', 'w')\n\
    z.writestr('dep.py', 'two = 2\\n')\n\
    z.writestr('dep-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: dep\\nVersion: 1\\n')\n\
    z.writestr('dep-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
    z.writestr('dep-1.dist-info/RECORD', 'dep.py,,\\ndep-1.dist-info/METADATA,,\\ndep-1.dist-info/WHEEL,,\\ndep-1.dist-info/RECORD,,\\n')\n\
    z.close()\n";

#[test]
fn a_python_project_is_built_and_tested_inside() {
    for mut kit in kits() {
        // The system's, which every user can run.
        kit.set("PATH", "/usr/local/bin:/usr/bin:/bin");
        if let Ok(bundle) = std::env::var("PIP_CERT") {
            kit.set("PIP_CERT", &bundle);
        }
        if kit.shell_outside("python3 -c 'import ensurepip'").status != 0 {
            skip("the system's Python has no ensurepip");
            continue;
        }
        kit.write("pyproject.toml", "[project]\nname = \"app\"\nversion = \"1\"\n");
        kit.write("wheel.py", WHEEL);
        kit.write("test_app.py", "import unittest, dep\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(dep.two, 2)\n");
        kit.shell_outside("python3 wheel.py").ok();
        let done = kit
            .shell("python3 -m venv .venv && .venv/bin/pip install --no-index ./dep-1-py3-none-any.whl && .venv/bin/python -m unittest")
            .ok();
        assert!(done.stderr.contains("OK"), "{done:?}");
        assert!(!kit.home().join(".cache").exists(), "nothing of it is the person's");
        let Some(private) = registries(&["pypi.org", "files.pythonhosted.org"]) else {
            skip("PyPI is out of reach");
            continue;
        };
        trust(
            &kit,
            &format!("extends = [\"coding\"]\n[network]\nprivate = {private}\n"),
        );
        kit.shell(".venv/bin/pip install six && .venv/bin/python -c 'import six'")
            .ok();
        assert!(!kit.home().join(".cache").exists());
    }
}

#[test]
fn a_c_project_is_built_and_tested_inside() {
    for kit in kits() {
        kit.write(
            "Makefile",
            "test: app\n\t./app\napp: app.c dep.h\n\tcc -O2 -Wall -o app app.c\n",
        );
        kit.write("app.c", "#include <stdio.h>\n#include \"dep.h\"\nint main(void) { if (TWO != 2) return 1; puts(\"tests pass\"); return 0; }\n");
        kit.write("dep.h", "#define TWO 2\n");
        let done = kit.shell("make test").ok();
        assert!(done.stdout.contains("tests pass"), "{done:?}");
    }
}
