//! A development day inside: compilers, interpreters, version control and debuggers do their work.

use bailiwick_gate::BindMode;

use crate::desk::{Desk, Setting, skipped};

#[test]
fn p13_compilers_interpreters_and_debuggers_work() {
    let mut missing = 0;
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        desk.file("project/a.c", "#include <stdio.h>\n#include <pthread.h>\nvoid *f(void *x) { puts(\"thread\"); return x; }\nint main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); return 0; }\n");
        for (needs, script, want) in [
            ("cc --version", "cc -g -o a a.c -lpthread && ./a", "thread"),
            (
                "gdb --version",
                "gdb -q -batch -ex 'break f' -ex run -ex bt ./a 2>&1 | grep -o 'Breakpoint 1, f'",
                "Breakpoint 1, f",
            ),
            ("strace --version", "strace -f ./a 2>&1 | grep -c 'write(1'", "1"),
            (
                "python3 --version",
                "/usr/bin/python3 -c \"import multiprocessing, threading, subprocess, asyncio\nprint(multiprocessing.Pool(2).map(abs, [-1]), subprocess.check_output(['echo', 'x']))\"",
                "[1] b'x\\n'",
            ),
            (
                "/usr/bin/node --version",
                "/usr/bin/node -e \"const w = require('worker_threads'); if (w.isMainThread) { new w.Worker('0', {eval: true}).on('exit', () => console.log(require('child_process').execSync('echo child').toString().trim())) }\"",
                "child",
            ),
            (
                "git --version",
                "git init -q r && cd r && echo x > x && git add x && git -c user.name=n -c user.email=e commit -qm m && git log --format=%s",
                "m",
            ),
            (
                "perl -v",
                "perl -e 'print fork() ? (wait(), \"parent\") [1] : exit'",
                "parent",
            ),
        ] {
            if !desk.outside(&["bash", "-c", needs]).status.success() {
                missing += 1;
                skipped(
                    missing,
                    &format!("`{needs}` does not work outside either ({setting:?})"),
                );
                continue;
            }
            let ran = desk.sh(script);
            assert!(ran.good().ends_with(want), "{script}: {ran:?}");
        }
    }
}

#[test]
fn p13_cargo_builds_and_tests_inside() {
    let Some(home) = std::env::var_os("CARGO").map(std::path::PathBuf::from) else {
        return skipped(1, "no `cargo` runs these tests");
    };
    // The toolchain, wherever it is kept.
    let toolchain = home.ancestors().nth(2).unwrap().to_path_buf();
    for setting in Setting::all() {
        let mut desk = Desk::of(setting);
        if !desk
            .outside(&["bash", "-c", &format!("{} --version", home.display())])
            .status
            .success()
        {
            skipped(
                1,
                &format!("`{}` is not for everybody to run ({setting:?})", home.display()),
            );
            continue;
        }
        desk.bind("cargo", BindMode::Write);
        let mut shown = desk.plan.binds[0].clone();
        shown.source = bailiwick_model::AbsPath::new(&toolchain).unwrap();
        shown.target = shown.source.clone();
        shown.own = true;
        desk.plan.binds.push(shown);
        desk.folder("cargo");
        desk.plan
            .environment
            .push(("CARGO_HOME".into(), desk.at("cargo").to_str().unwrap().into()));
        desk.plan.environment[0]
            .1
            .push_str(&format!(":{}", toolchain.join("bin").display()));
        let ran = desk
            .sh("cargo init -q --name inside --vcs none . && cargo test -q --offline 2>&1 && cargo run -q --offline");
        assert!(ran.good().ends_with("Hello, world!"), "{ran:?}");
    }
}
