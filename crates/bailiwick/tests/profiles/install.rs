//! Install steps: the registry without the sources, then the sources without a network.

use crate::kits;

#[test]
fn p2_an_install_step_has_the_registry_and_not_the_sources_and_the_other_way_round() {
    for kit in kits() {
        kit.write(
            "package.json",
            "{\"name\": \"app\", \"version\": \"1.0.0\", \"dependencies\": {\"dep\": \"file:./dep\"}}\n",
        );
        kit.write(
            "dep/package.json",
            "{\"name\": \"dep\", \"version\": \"1.0.0\", \"scripts\": {\"postinstall\": \"echo owned >> $INIT_CWD/src.js; true\"}}\n",
        );
        kit.write("src.js", "console.log(1)\n");
        kit.write("secret.txt", "SECRET\n");
        kit.write(
            "bailiwick.toml",
            "extends = [\"coding\"]\n[files]\ndeny = [\"secret.txt\"]\n",
        );
        kit.run(&["trust"]).ok();
        kit.shell_outside("mkdir -p node_modules && touch package-lock.json")
            .ok();
        let install = "npm install --no-audit --no-fund --offline --install-links";
        // Outside, the script of the package changes the sources.
        kit.shell_outside(&format!(
            "cp -r . ../copy && cd ../copy && {install} && grep owned src.js"
        ))
        .ok();
        let with = |preset: &str, line: &str| kit.run(&["run", "-q", "--preset", preset, "--", "sh", "-c", line]);
        with("install", install).ok();
        assert!(kit.project().join("node_modules/dep/package.json").exists());
        assert_eq!(
            std::fs::read_to_string(kit.project().join("src.js")).unwrap(),
            "console.log(1)\n"
        );
        assert_ne!(
            with("install", "cat secret.txt").status,
            0,
            "denies hold with every preset"
        );
        with("offline", "echo '// changed' >> src.js").ok();
        assert_ne!(with("readonly", "echo '// changed' >> src.js").status, 0);
        assert_ne!(with("offline", "cat secret.txt").status, 0);
        // Who can be reached is said before.
        let reach = |preset: &str| kit.run(&["run", "--preset", preset, "--", "true"]).ok().stderr;
        assert!(reach("install").contains("registry.npmjs.org"));
        assert!(reach("offline").contains("reach no host"));
        let wrong = kit.run(&["run", "--preset", "instal", "--", "true"]).status_is(125);
        assert!(
            wrong.stderr.contains("`instal`") && wrong.stderr.contains("`install`"),
            "{wrong:?}"
        );
    }
}
