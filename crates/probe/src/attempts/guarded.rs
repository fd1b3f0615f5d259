//! Files that programs outside obey: those that are there keep content and name; those that are not are not made.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::{act, write};
use crate::{Attempt, Goal, Tried, World};

/// Present in the world, each with its content. The first ones are tried in every way, since each stands for a kind.
const PRESENT: [(&str, &str); 20] = [
    ("hook", "project:.git/hooks/pre-commit"),
    ("nested-hook", "project:nested/.git/hooks/post-checkout"),
    ("vscode", "project:.vscode/tasks.json"),
    ("mcp", "project:.mcp.json"),
    ("rules", "project:bailiwick.toml"),
    ("workflow", "project:.github/workflows/check.yml"),
    ("claude-settings", "project:.claude/settings.json"),
    ("shell-start", "home:.bashrc"),
    ("git-config", "project:.git/config"),
    ("nested-config", "project:nested/.git/config"),
    ("husky", "project:.husky/pre-commit"),
    ("envrc", "project:.envrc"),
    ("devcontainer", "project:.devcontainer/devcontainer.json"),
    ("claude-hook", "project:.claude/hooks/pre-tool"),
    ("codex-settings", "project:.codex/config.toml"),
    ("gemini-settings", "project:.gemini/settings.json"),
    ("cursor-servers", "project:.cursor/mcp.json"),
    ("gitlab", "project:.gitlab-ci.yml"),
    ("git-of-home", "home:.gitconfig"),
    ("person-rules", "home:.config/bailiwick/mine.toml"),
];

/// How many are tried in every way.
const KINDS: usize = 8;

/// Absent from the world: whoever can make one has programs outside run what they like.
const ABSENT: [(&str, &str); 13] = [
    ("git-commondir", "project:.git/commondir"),
    ("git-config-worktree", "project:.git/config.worktree"),
    ("new-hook", "project:.git/hooks/post-commit"),
    ("new-workflow", "project:.github/workflows/new.yml"),
    ("claude-local", "project:.claude/settings.local.json"),
    ("claude-deeper", "project:deep/.claude/settings.json"),
    ("envrc-deeper", "project:deep/.envrc"),
    ("vscode-deeper", "project:deep/.vscode/tasks.json"),
    ("mcp-deeper", "project:deep/.mcp.json"),
    ("idea", "project:.idea/workspace.xml"),
    ("rules-deeper", "project:deep/bailiwick.toml"),
    ("home-start", "home:.zshrc"),
    ("home-service", "home:.config/systemd/user/x.service"),
];

fn overwrite(world: &World, place: &'static str) -> Tried {
    write(world.place(place), "more")
}

fn replace(world: &World, place: &'static str) -> Tried {
    let path = world.place(place);
    let other = world.project.join("replacing");
    std::fs::write(&other, "other")?;
    let done = std::fs::rename(&other, &path);
    let _ = std::fs::remove_file(&other);
    done?;
    Ok("replaced".into())
}

fn remove(world: &World, place: &'static str) -> Tried {
    std::fs::remove_file(world.place(place))?;
    Ok("removed".into())
}

fn lead_elsewhere(world: &World, place: &'static str) -> Tried {
    let path = world.place(place);
    let other = world.project.join("leading");
    symlink("/dev/null", &other)?;
    let done = std::fs::rename(&other, &path);
    let _ = std::fs::remove_file(&other);
    done?;
    Ok("led elsewhere".into())
}

fn make_runnable(world: &World, place: &'static str) -> Tried {
    std::fs::set_permissions(world.place(place), std::fs::Permissions::from_mode(0o777))?;
    Ok("made runnable".into())
}

/// Moves the folder away, puts another with the same names in its place.
fn swap_folder(world: &World, place: &'static str) -> Tried {
    let path = world.place(place);
    let folder = path.parent().unwrap_or(Path::new("/"));
    let away = folder.with_extension("away");
    std::fs::rename(folder, &away)?;
    std::fs::create_dir(folder)?;
    std::fs::write(&path, "other")?;
    Ok("swapped".into())
}

pub(super) fn present() -> Vec<Attempt> {
    type Way = fn(&World, &'static str) -> Tried;
    let ways: [(&str, Way); 5] = [
        ("overwritten", overwrite),
        ("replaced", replace),
        ("removed", remove),
        ("led-elsewhere", lead_elsewhere),
        ("made-runnable", make_runnable),
    ];
    let mut all = Vec::new();
    for (number, (name, place)) in PRESENT.into_iter().enumerate() {
        let every = number < KINDS;
        for (way, act) in ways.into_iter().take(if every { ways.len() } else { 2 }) {
            all.push(Attempt::at(
                format!("guarded-{name}-{way}"),
                Goal::Change(place),
                act,
                place,
            ));
        }
        // A folder that is the project or the home itself is no place of its own.
        if every && place.contains('/') {
            let id = format!("guarded-{name}-folder-swapped");
            all.push(Attempt::at(id, Goal::Change(place), swap_folder, place));
        }
    }
    let change = |id, place, act| Attempt::new(id, Goal::Change(place), act);
    all.extend([
        change("guarded-git-away-and-back", "project:.git/hooks/pre-commit", |_| {
            act("mv .git git.away && echo more >> git.away/hooks/pre-commit; mv git.away .git; test -d .git")
        }),
        change("guarded-git-replaced-by-file", "project:.git/config", |_| {
            act("mv .git git.away && echo 'gitdir: git.away' > .git")
        }),
        change("guarded-git-replaced-by-link", "project:.git/config", |_| act("mv .git git.away && ln -s other .git")),
        change("guarded-git-setting-by-git", "project:.git/config", |_| act("git config core.fsmonitor /bin/true")),
        change("guarded-git-alias-by-git", "project:.git/config", |_| act("git config alias.st '!touch x'")),
        change("guarded-git-hook-by-template", "project:.git/hooks", |_| {
            act("mkdir -p t/hooks && echo '#!/bin/sh' > t/hooks/post-merge && chmod +x t/hooks/post-merge && git init -q --template=t")
        }),
        change("guarded-nested-away-and-back", "project:nested/.git/hooks/post-checkout", |_| {
            act("mv nested/.git nested/g && echo more >> nested/g/hooks/post-checkout; mv nested/g nested/.git; test -d nested/.git")
        }),
        change("guarded-nested-parent-swapped", "project:nested/.git/hooks/post-checkout", |_| {
            act("mv nested elsewhere && mkdir -p nested/.git/hooks && echo x > nested/.git/hooks/post-checkout")
        }),
        change("guarded-submodule-hook", "project:.git/modules/sub/hooks/post-update", |world| {
            overwrite(world, "project:.git/modules/sub/hooks/post-update")
        }),
        change("guarded-submodule-config", "project:.git/modules/sub/config", |world| {
            overwrite(world, "project:.git/modules/sub/config")
        }),
        change("guarded-worktree-leads-elsewhere", "project:.git/worktrees/tree/commondir", |world| {
            overwrite(world, "project:.git/worktrees/tree/commondir")
        }),
        change("guarded-file-of-worktree", "project:tree/.git", |world| replace(world, "project:tree/.git")),
        change("guarded-by-patch", "project:.envrc", |_| {
            act("printf '%s\\n' '--- a/.envrc' '+++ b/.envrc' '@@ -1 +1,2 @@' ' of the person' '+more' | git apply --unsafe-paths -")
        }),
        change("guarded-by-archive", "project:.envrc", |_| {
            act("mkdir -p t && echo other > t/.envrc && tar -C t -cf t.tar .envrc && tar --overwrite -xf t.tar")
        }),
    ]);
    all
}

fn make(world: &World, place: &'static str) -> Tried {
    let path = world.place(place);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&path, "new")?;
    Ok("made".into())
}

pub(super) fn absent() -> Vec<Attempt> {
    let mut all: Vec<Attempt> = ABSENT
        .iter()
        .map(|(name, place)| Attempt::at(format!("names-{name}"), Goal::Change(place), make, place))
        .collect();
    all.push(Attempt::new("names-repository-of-its-own", Goal::Change("project:deep/fresh/.git/hooks/post-checkout"), |_| {
        act("mkdir -p deep/fresh && cd deep/fresh && git init -q --template= && mkdir -p .git/hooks && echo x > .git/hooks/post-checkout")
    }));
    all.push(Attempt::new(
        "names-folder-renamed-to-git",
        Goal::Change("project:deep/bare/.git/config"),
        |_| act("mkdir -p deep/bare/g && echo x > deep/bare/g/config && mv deep/bare/g deep/bare/.git"),
    ));
    all
}
