//! C070: no mistake in a rule file passes in silence.

use bailiwick_policy::{Severity, SourceFile};

use crate::{file, load, project, sources};

/// What is said, as `line:column: message | hint`, errors only.
pub(crate) fn said(text: &str) -> Vec<String> {
    match project(text) {
        Ok(_) => Vec::new(),
        Err(all) => all
            .iter()
            .filter(|one| one.is_error())
            .map(|one| {
                format!(
                    "{}:{}: {} | {}",
                    one.line,
                    one.column,
                    one.message,
                    one.hint().unwrap_or("")
                )
            })
            .collect(),
    }
}

#[track_caller]
fn says(text: &str, want: &str) {
    assert_eq!(said(text), [want], "{text}");
}

#[test]
fn c070_a_diagnostic_prints_with_its_place() {
    let wrong = project("[files]\nwrit = [\".\"]\n").unwrap_err();
    assert_eq!(wrong[0].to_string(), "bailiwick.toml:2:1: `writ` is not a known key");
    assert_eq!(wrong[0].hint(), Some("did you mean `write`?"));
}

#[test]
fn c070_unknown_keys_name_the_nearest() {
    says(
        "[files]\ndenyWrit = [\"x\"]\n",
        "2:1: `denyWrit` is not a known key | did you mean `deny`?",
    );
    says(
        "[fils]\nread = [\".\"]\n",
        "1:2: `fils` is not a known key | did you mean `files`?",
    );
    says(
        "extend = [\"coding\"]\n",
        "1:1: `extend` is not a known key | did you mean `extends`?",
    );
    says(
        "[network]\ntunels = [\"a.test\"]\n",
        "2:1: `tunels` is not a known key | did you mean `tunnel`?",
    );
    says(
        "[limits]\nmemroy = \"1 GiB\"\n",
        "2:1: `memroy` is not a known key | did you mean `memory`?",
    );
    says(
        "write = [\".\"]\n",
        "1:1: `write` is not a known key | known here: `context`, `extends`, `files`, `network`, `commands`, `allow`, `ask`, `deny`, `environment`, `devices`, `git`, `fence`, `limits`, `profiles`, `oversight`, `approver`, `questions`, `state`, `broker`, `secret`, `server`, `tool`, `relations`, `tag`",
    );
}

#[test]
fn c070_a_mistyped_limit_of_a_rule_is_no_rule() {
    says(
        "allow = [{ rule = \"read .\", prefixx = \"npm test\" }]\n",
        "1:29: `prefixx` is not a known key | known here: `rule`, `allows`, `denies`, `reason`, `variables`, `exact`, `tls`, `query`, \
         `body`, `answer`, `pin`, `budget`",
    );
    says(
        "allow = [{ reason = \"x\" }]\n",
        "1:10: a rule's table has no `rule` | add `rule = \"...\"`",
    );
}

#[test]
fn c070_patterns_that_cannot_be_read() {
    says(
        "[files]\ndeny = [\"src/[ab\"]\n",
        "2:9: `src/[ab` uses a bracket, which patterns do not have: use `*` for one segment and `**` for any number | ",
    );
    says(
        "[network]\ntunnel = [\"*.*\"]\n",
        "2:11: `*.*` has no literal label: write `**` for any host, or name a domain as in `*.example.com` | ",
    );
    says(
        "[network]\nallow = [\"GET http://a.test:99999/\"]\n",
        "2:10: `99999` is not a port | ",
    );
    says(
        "allow = [\"raed ~/x\"]\n",
        "1:10: `raed` is not a verb | did you mean `read`?",
    );
    says(
        "allow = [\"~/x\"]\n",
        "1:10: `~/x` is not an act: write `VERB RESOURCE`, for instance `read ~/notes` or `GET http://host/path` | ",
    );
}

#[test]
fn c070_what_can_never_match() {
    says(
        "allow = [\"GET http://169.254.169.254/**\"]\n",
        "1:10: `GET http://169.254.169.254/**` can never match | link-local addresses, where clouds keep their metadata \
         services, are always refused: take the rule out",
    );
    says(
        "[network.hosts]\n\"meta.test\" = \"169.254.169.254\"\n",
        "2:15: `169.254.169.254` can never be reached | link-local addresses, where clouds keep their metadata services, \
         are always refused",
    );
    says(
        "[files]\nread = [\"~/.config/bailiwick\"]\n",
        "2:9: `read /home/dana/.config/bailiwick` can never match: bailiwick itself denies `* /home/dana/.config/bailiwick` \
         | take the rule out",
    );
    says(
        "[files]\nread = [\"~/x/y\"]\ndeny = [\"~/x\"]\n",
        "2:9: `read /home/dana/x/y` can never match: `* /home/dana/x` (line 3) denies all of it | a deny is never \
         overridden: narrow it, or take this rule out",
    );
}

#[test]
fn c070_the_same_act_allowed_and_denied() {
    says(
        "allow = [\"read ~/x\"]\ndeny = [\"read ~/x\"]\n",
        "1:10: `read /home/dana/x` is both allowed and denied (line 2): the deny always wins | take one of the two out",
    );
    says(
        "[network]\ntunnel = [\"a.test\"]\ndeny = [\"tunnel A.test.\"]\n",
        "2:11: `tunnel a.test` is both allowed and denied (line 3): the deny always wins | take one of the two out",
    );
}

#[test]
fn c070_what_the_outer_layers_deny_is_a_warning() {
    let policy = project("[files]\nread = [\"~/.ssh\"]\n").unwrap();
    let warning = &policy.warnings()[0];
    assert_eq!(warning.severity, Severity::Warning);
    let want = "bailiwick.toml:2:9: `read /home/dana/.ssh` can never match: `* /home/dana/.ssh` (preset:ceiling:";
    assert!(warning.to_string().starts_with(want), "{warning}");
}

#[test]
fn c070_files_that_are_none() {
    for empty in ["", "# only a comment\n"] {
        says(
            empty,
            "1:1: the file holds no rule | write `extends = [\"coding\"]`, or remove the file",
        );
    }
    let hint = "rule files are TOML: `bailiwick init` writes one with comments";
    says(
        "{\"permissions\": {\"deny\": [\"Read(./.env)\"]}}",
        &format!("1:1: this is JSON, not a rule file of bailiwick | {hint}"),
    );
    says(
        "version: 1\nnetwork:\n  - allow: all\n",
        &format!("1:1: this is YAML, not a rule file of bailiwick | {hint}"),
    );
    let own = "rules of bailiwick stand under `[files]` and `[network]`: `bailiwick init` writes a file with comments";
    says(
        "sandbox_mode = \"read-only\"\n",
        &format!("1:1: `sandbox_mode` is a key of Codex's settings, not of bailiwick | {own}"),
    );
    says(
        "[permissions]\nallow = []\n",
        &format!("1:2: `permissions` is a key of another agent's settings, not of bailiwick | {own}"),
    );
    says(
        "[files]\nread = [\".\"]\nread = [\"~/x\"]\n",
        "3:1: this is not TOML: duplicate key | put both lists into one",
    );
}

#[test]
fn c070_wrong_types() {
    says(
        "files = [\".\"]\n",
        "1:1: `files` must be a table, not a list | write `[files]` and its keys below",
    );
    says(
        "[files]\nread = \".\"\n",
        "2:8: rules must be a list, not a text | put the rules into a list: `[\"...\"]`",
    );
    says(
        "[files]\nread = [1]\n",
        "2:9: a rule cannot be a number | write a rule as text, or as a table with `rule = \"...\"`",
    );
    says(
        "context = 1\n",
        "1:11: `context` must be a text, not a number | write `context = \"...\"`",
    );
    says(
        "[limits]\nmemory = \"8 gigs\"\n",
        "2:10: `memory` is not a size | write `memory = \"8 GiB\"`",
    );
    says(
        "[limits]\nprocesses = 0\n",
        "2:13: `processes` is not a count | write `processes = 4096`",
    );
    says(
        "[environment]\npass = [\"A=b\"]\n",
        "2:9: `A=b` is not the name of a variable | letters, digits and `_`, with at most a final `*`; values stand under `set`",
    );
}

#[test]
fn p13_what_this_build_cannot_keep_is_refused() {
    says(
        "[files]\nask = [\"~/Documents/*.pdf\"]\n",
        "2:8: `~/Documents/*.pdf` has a wildcard, and allows and asks of files must name a folder or one file | name the whole \
         folder `/home/dana/Documents`, with a deny for what is inside it",
    );
    let said = said("budget = 1\n");
    assert!(said.len() == 1 && said[0].contains("`budget`: "), "{said:?}");
    says(
        "[files]\nread = [\"~/notes/*.md\"]\n",
        "2:9: `~/notes/*.md` has a wildcard, and allows and asks of files must name a folder or one file | name the whole folder \
         `/home/dana/notes`, with a deny for what is inside it",
    );
    says(
        "[files]\nwrite = [\"**/target\"]\n",
        "2:10: `**/target` is too wide for an allow | name a folder, for instance `.` or `~/src`; only a deny may begin with `**`",
    );
}

#[test]
fn p4_commands_that_cannot_be_said() {
    let hint = "write program, subcommand, options, as in `run git push` or `run rm -r build`";
    for (text, column, said) in [
        (
            "git log && rm x",
            11,
            "`run git log && rm x` is a shell line, with `&`: a rule names one command",
        ),
        ("@all", 11, "`@all` is no class of commands: there is `@read-only`"),
        (
            "@read-only x",
            11,
            "`run @read-only x` cannot be said: `@read-only` stands alone",
        ),
        ("'ls", 11, "`run 'ls` has a quote that does not end"),
        (
            "ls ** x",
            11,
            "`run ls ** x` cannot be said: `**` stands at the end only",
        ),
    ] {
        says(
            &format!("[commands]\nallow = [\"{text}\"]\n").replace("allow = [", "allow =  ["),
            &format!("2:{column}: {said} | {hint}"),
        );
    }
    says(
        "[commands]\ndeny = [\"run git push\"]\n",
        "2:9: `run git push` has a verb where none belongs | the verb is said by the key: write the rest only, or put `run git \
         push` into a list at the top",
    );
    says(
        "[commands]\ndeny = [{ rule = \"**\", exact = true }]\n",
        "2:32: `run **` has no `variables` and is never `exact` | both narrow a rule such as `run git log`",
    );
    says(
        "[commands]\nallow = [{ rule = \"ls\", allows = [\"run lsx\"] }]\n",
        "2:35: `ls` does not cover its example `run lsx` | widen the rule, or correct the example",
    );
    says(
        "[commands]\nalow = []\n",
        "2:1: `alow` is not a known key | did you mean `allow`?",
    );
}

#[test]
fn presets_that_are_not_there() {
    says(
        "extends = [\"codng\"]\n",
        "1:12: there is no preset `codng` | did you mean `coding`?",
    );
    says(
        "extends = [\"office\"]\n",
        "1:12: the preset `office` is not shipped with this build | known here: `coding`, `install`, `readonly`, `offline`, `base`, \
         `crates-io`, `pypi`, `npm`, `debian`",
    );
    says(
        "extends = [\"ceiling\"]\n",
        "1:12: `ceiling` is a preset for `~/.config/bailiwick` and `/etc/bailiwick` only | known here: `coding`, `install`, \
         `readonly`, `offline`, `base`, \
         `crates-io`, `pypi`, `npm`, `debian`",
    );
}

#[test]
fn verbs_and_urls_in_the_wrong_place() {
    says(
        "[files]\ndeny = [\"write .git\"]\n",
        "2:9: `write .git` has a verb where none belongs | the verb is said by the key: write the rest only, or put `write .git` \
         into a list at the top",
    );
    says(
        "[network]\ntunnel = [\"https://a.test/x\"]\n",
        "2:11: `https://a.test/x` is a url: a tunnel is to a host | write `a.test`",
    );
    says(
        "[network]\nallow = [\"read ~/x\"]\n",
        "2:10: `read ~/x` is not an act of the network | put it into a list at the top of the file, or under `[files]`",
    );
}

#[test]
fn rules_are_held_against_their_examples() {
    let good =
        "deny = [{ rule = \"* **/.env\", denies = [\"read .env\", \"write a/.env\"], allows = [\"read .envrc\"] }]\n";
    assert_eq!(said(&format!("extends = [\"coding\"]\n{good}")), [""; 0]);
    let good =
        "allow = [{ rule = \"write ~/x\", allows = [\"read ~/x/y\", \"delete ~/x/y\"], denies = [\"read ~/y\"] }]\n";
    assert_eq!(said(good), [""; 0]);
    says(
        "allow = [{ rule = \"GET http://a.test/x/*\", allows = [\"GET http://a.test/x/y/z\"] }]\n",
        "1:54: `GET http://a.test/x/*` does not cover its example `GET http://a.test/x/y/z` | widen the rule, or correct the example",
    );
    says(
        "allow = [{ rule = \"tunnel **.a.test\", denies = [\"tunnel b.a.test\"] }]\n",
        "1:49: `tunnel **.a.test` covers its example `tunnel b.a.test` | the rule is wider than its examples: narrow it, or correct \
         the example",
    );
    says(
        "allow = [{ rule = \"read ~/x\", allows = [\"read ~/x/*\"] }]\n",
        "1:41: `read ~/x/*` has a wildcard: name one file, host, url or command | an example is one act, as in `read ~/x`",
    );
}

#[test]
fn all_mistakes_are_said_at_once() {
    let text = "extends = [\"codng\"]\n[files]\nwrit = [\".\"]\nask = [\"x/*\"]\n[network]\ntunnel = [\"*.*\"]\n";
    assert_eq!(said(text).len(), 4, "{:?}", said(text));
    let files: Vec<SourceFile> = vec![file("a.toml", "x = 1\n"), file("b.toml", "y = 1\n")];
    let wrong = load(&bailiwick_policy::Sources {
        person: files.clone(),
        machine: files,
        ..sources()
    })
    .unwrap_err();
    assert_eq!(wrong.iter().filter(|one| one.is_error()).count(), 4, "{wrong:?}");
}

#[test]
fn names_in_messages_cannot_speak_to_the_terminal() {
    let said = said("\"a\\u001b[2J\" = 1\n");
    assert!(
        said[0].contains("a\\u{1b}[2J") && !said[0].contains('\u{1b}'),
        "{said:?}"
    );
}

#[test]
fn c070_ports_and_devices_are_told_apart_from_other_words() {
    says(
        "extends = [\"coding\"]\n[network]\npublish = [70000]\n",
        "3:12: `70000` is not a port: write `5173`, or `8080:3000` for port 3000 inside at 8080 outside | ",
    );
    says(
        "extends = [\"coding\"]\n[network]\npublish = 5173\n",
        "3:11: `publish` must be a list of ports, not a number | write `publish = [5173, \"8080:3000\"]`",
    );
    says(
        "extends = [\"coding\"]\n[devices]\nallow = [\"kvm\"]\n",
        "3:10: `kvm` is not a device: write `gpu`, `wayland`, or a file below /dev such as `/dev/kvm` | ",
    );
    says(
        "extends = [\"coding\"]\n[devices]\nalow = [\"gpu\"]\n",
        "3:1: `alow` is not a known key | did you mean `allow`?",
    );
}

#[test]
fn p13_what_goes_round_a_rule_by_a_tunnel_is_refused() {
    says(
        "[network]\ntunnel = [\"a.test\"]\ndeny = [\"POST https://a.test/**\"]\n",
        "2:11: `tunnel a.test` can never match: `POST https://a.test/**` (line 3) denies all of it | what is in a tunnel is not \
         seen, so it would go round the deny: allow requests instead, as in `GET https://a.test/**`",
    );
    says(
        "[network]\ntunnel = [\"a.test\"]\ndeny = [\"* https://a.test/x/**\"]\n",
        "2:11: `tunnel a.test` can never match: `* https://a.test/x/**` (line 3) denies all of it | what is in a tunnel is not \
         seen, so it would go round the deny: allow requests instead, as in `GET https://a.test/**`",
    );
    says(
        "[network]\ntunnel = [\"a.test\"]\ndeny = [\"* https://a.test/**\"]\n",
        "2:11: `tunnel a.test` can never match: `* https://a.test/**` (line 3) denies all of it | a deny is never overridden: \
         narrow it, or take this rule out",
    );
    says(
        "[network]\ntunnel = [\"a.test\"]\nallow = [\"GET https://a.test/x/**\"]\n",
        "3:10: `GET https://a.test/x/**` is never looked at: `tunnel a.test` (line 2) passes that host on unread | take one of \
         the two out: a tunnel is told by the host's name alone",
    );
}

#[test]
fn p13_only_a_whole_host_is_passed_on_unread() {
    says(
        "[network]\nallow = [{ rule = \"GET https://a.test/**\", tls = \"pass\" }]\n",
        "2:50: `GET https://a.test/**` cannot be passed on unread: no method and no path is seen there | write `* https://host`, \
         in an allow or ask, with `tls = \"pass\"`",
    );
    says(
        "[network]\ndeny = [{ rule = \"* https://a.test\", tls = \"pass\" }]\n",
        "2:44: `* https://a.test` cannot be passed on unread: no method and no path is seen there | write `* https://host`, in \
         an allow or ask, with `tls = \"pass\"`",
    );
    says(
        "[network]\nallow = [{ rule = \"* https://a.test\", tls = \"open\" }]\n",
        "2:45: `tls` can only be `pass` | write `tls = \"pass\"` to pass a host on unread; without the key its connections are opened",
    );
}

#[test]
fn p4_roots_are_no_projects_to_say() {
    says(
        "[network]\nroots = [\"/x/ca.pem\"]\n",
        "2:1: `roots` cannot stand in a project's file | put it into `~/.config/bailiwick/*.toml`: whom servers are believed \
         from is not a project's to say",
    );
}

#[test]
fn p4_a_site_is_what_one_owner_has() {
    says(
        "[network]\nallow = [\"GET https://site:co.uk/**\"]\n",
        "2:10: `co.uk` is a public suffix: everybody can have names below it | write a domain that has one owner, as in \
         `site:example.co.uk`",
    );
    says(
        "[network]\ndeny = [\"* https://site:www.example.com/**\"]\n",
        "2:9: `www.example.com` is a name in the site `example.com`, and no site itself | write `site:example.com`, or \
         `**.www.example.com` for what is below that name",
    );
    says(
        "[network]\nprivate = [\"site:github.io\"]\n",
        "2:12: `github.io` is a public suffix: everybody can have names below it | write a domain that has one owner, as in \
         `site:example.github.io`",
    );
}

#[test]
fn c070_whether_a_question_is_told_is_yes_or_no() {
    says(
        "[questions]\nnotify = \"always\"\n",
        "2:10: `notify` must be `true` or `false`, not a text | ",
    );
    let notify = |text: &str| {
        let text = format!("extends = [\"coding\"]\n{text}");
        project(&text).unwrap().settings().notify
    };
    assert_eq!(notify(""), None);
    assert_eq!(notify("[questions]\nnotify = true\n"), Some(true));
    assert_eq!(notify("[questions]\nnotify = false\n"), Some(false));
}
