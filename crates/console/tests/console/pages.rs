//! Every kind of question as a page, word by word: `snapshots/NAME.html`. `BAILIWICK_UPDATE=1` writes them anew.

use std::path::Path;
use std::sync::Arc;

use bailiwick_gate::desk::{AtWork, Terms};
use bailiwick_model::TaskId;

use crate::client::{Browser, Heard};
use crate::fake::{NOW, Still, every_kind, grant, serve, some_times};

/// The page with what differs between builds and sessions taken out, one element a line.
fn plain(heard: &Heard, browser: &Browser) -> String {
    assert_eq!(heard.status, 200, "{}", heard.body);
    let mut text = heard
        .body
        .replace(&browser.path, "/s/SESSION")
        .replace(&browser.form, "FORM");
    if let Some(seen) = heard.field("seen") {
        text = text.replace(&seen, "SEEN");
    }
    for ending in ["css", "js", "svg"] {
        let mut out = String::new();
        let mut rest = text.as_str();
        let mark = format!(".{ending}\"");
        while let Some(at) = rest.find(&mark) {
            let (before, after) = rest.split_at(at);
            let stem = before.rsplit_once('.').map_or(before, |(stem, _)| stem);
            out.push_str(stem);
            out.push_str(".DIGEST");
            out.push_str(&mark);
            rest = after.strip_prefix(mark.as_str()).unwrap();
        }
        out.push_str(rest);
        text = out;
    }
    for tag in [
        "<div",
        "<p",
        "<h1",
        "<h2",
        "<h3",
        "<li",
        "<ul",
        "<ol",
        "<form",
        "<section",
        "<input",
        "<button",
        "<main",
        "<footer",
        "<header",
        "<nav",
        "<fieldset",
        "<select",
        "<option",
        "<label",
        "<meta",
        "<link",
        "<script",
        "<body",
        "<article",
        "</main",
        "</body",
        "</section",
        "</form",
        "<dl",
        "<dt",
        "<dd",
        "<blockquote",
        "<legend",
        "<title",
        "<details",
        "<a ",
        "<pre",
        "<code",
    ] {
        text = text.replace(tag, &format!("\n{tag}"));
    }
    text.trim_start().to_owned() + "\n"
}

fn compare(name: &str, found: &str) -> Option<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/console/snapshots")
        .join(format!("{name}.html"));
    if std::env::var_os("BAILIWICK_UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, found).unwrap();
        return None;
    }
    let wanted = std::fs::read_to_string(&file).unwrap_or_default();
    if wanted == found {
        return None;
    }
    let differs = wanted
        .lines()
        .zip(found.lines())
        .find(|(wanted, found)| wanted != found);
    Some(format!(
        "{name}: {differs:?}; BAILIWICK_UPDATE=1 writes it anew, look at what changed"
    ))
}

#[test]
fn p8_every_kind_of_question_is_shown_as_it_was_looked_at() {
    let served = serve(Arc::new(Still));
    let browser = Browser::enter(&served);
    let mut findings = Vec::new();
    for (name, asked) in every_kind() {
        let page = format!("/question/{}", asked.id);
        let details = asked.details.clone();
        served.desk.change(|held| held.asked = vec![asked]);
        let heard = browser.get(&page);
        findings.extend(compare(name, &plain(&heard, &browser)));
        // Whole, over all its parts.
        let mut all = heard.body.clone();
        while !all.contains("id=\"end\"") {
            let part = all.matches("id=\"next\"").count() + 1;
            let next = browser.get(&format!("{page}/part?part={part}"));
            assert_eq!(next.status, 200);
            all.push_str(&next.body);
        }
        for line in details.iter().flat_map(|detail| &detail.lines) {
            let escaped = bailiwick_model::visible(line)
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;")
                .replace('"', "&quot;");
            assert!(all.contains(&escaped), "{name}: {escaped}");
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn the_other_pages_are_shown_as_they_were_looked_at() {
    let served = serve(Arc::new(Still));
    let browser = Browser::enter(&served);
    let mut findings = Vec::new();
    findings.extend(compare("no-questions", &plain(&browser.get("/questions"), &browser)));
    served.desk.change(|held| {
        held.asked = every_kind().into_iter().take(5).map(|(_, asked)| asked).collect();
        held.granted = vec![
            grant(1, "may read /a, at most 5 times, in this context", some_times(5)),
            grant(2, "may run x, in this task", Terms::default()),
        ];
        held.at_work = vec![AtWork {
            id: TaskId([5; 8]),
            context: "/home/dana/acme-site".into(),
            command: vec!["claude".into(), "--continue".into()],
            started: NOW,
        }];
    });
    for name in ["questions", "tasks", "grants", "log", "authority"] {
        findings.extend(compare(name, &plain(&browser.get(&format!("/{name}")), &browser)));
    }
    served
        .desk
        .change(|held| held.asked = (0..3).flat_map(|_| every_kind()).map(|(_, asked)| asked).collect());
    findings.extend(compare("many-questions", &plain(&browser.get("/questions"), &browser)));
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
