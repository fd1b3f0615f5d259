//! `bailiwick init`: a file that fits, loads, and is never written over another.

use crate::kits;

#[test]
fn p4_init_writes_a_file_that_fits_and_never_over_another() {
    for kit in kits() {
        kit.write("Cargo.toml", "");
        kit.write("web/package.json", "{}");
        kit.shell_outside("git init -q . && git remote add origin https://git.example.com/a/b.git")
            .ok();
        let printed = kit.run(&["init", "--print"]).ok().stdout;
        assert!(!kit.project().join("bailiwick.toml").exists());
        let told = kit.run(&["init"]).ok().stdout;
        assert!(
            told.contains("for node, rust, git") && told.contains("`bailiwick trust`"),
            "{told}"
        );
        let text = std::fs::read_to_string(kit.project().join("bailiwick.toml")).unwrap();
        assert_eq!(text, printed);
        assert!(
            text.contains("git.example.com") && text.contains("\"node\", \"rust\""),
            "{text}"
        );
        let check = kit.run(&["policy", "check"]).ok().stdout;
        assert!(check.contains("no mistakes") && !check.contains("warning"), "{check}");
        kit.run(&["trust"]).ok();
        kit.shell("touch made").ok();
        // A second time, also from a folder below, where the first one counts.
        kit.write("bailiwick.toml", "extends = [\"offline\"]\n");
        for folder in [".", "web"] {
            let mut again = kit.command(&["init"]);
            let again = again.current_dir(kit.project().join(folder)).output().unwrap();
            assert_eq!(again.status.code(), Some(2), "{again:?}");
            assert!(String::from_utf8_lossy(&again.stderr).contains("is there already"));
        }
        assert_eq!(
            std::fs::read_to_string(kit.project().join("bailiwick.toml")).unwrap(),
            "extends = [\"offline\"]\n"
        );
        // A link in its place is not followed.
        kit.shell_outside("rm bailiwick.toml && ln -s ../victim bailiwick.toml")
            .ok();
        assert_ne!(kit.run(&["init"]).status, 0);
        assert!(!kit.outside().join("victim").exists());
        // Inside, nobody writes rules.
        kit.shell_outside("rm bailiwick.toml").ok();
        let program = kit.program();
        let inside = kit.shell(&format!("{program} init"));
        assert_ne!(inside.status, 0);
        assert!(!kit.project().join("bailiwick.toml").exists());
    }
}
