//! The real agent programs, as `./scripts/test` installs them, and what makes each speak to a scripted model.

use std::path::{Path, PathBuf};

/// A program with all that it needs to run unattended against a model on the loopback.
#[derive(Debug, Clone)]
pub struct Agent {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables to add to the environment.
    pub environment: Vec<(String, String)>,
    /// Files to write before, relative to the home folder.
    pub files: Vec<(PathBuf, String)>,
    /// The folder that the program and its parts lie in.
    pub folder: PathBuf,
}

impl Agent {
    /// Writes the agent's files into a home folder.
    pub fn settle_in(&self, home: &Path) {
        for (path, content) in &self.files {
            let path = home.join(path);
            let parent = path.parent().expect("a file lies in a folder");
            std::fs::create_dir_all(parent).expect("the home is writable");
            std::fs::write(&path, content).expect("the home is writable");
        }
    }
}

/// Claude Code. Its tools are `Bash` {command, description}, `Read` {file_path}, `Write` {file_path, content}, `Edit`.
pub fn claude(model_port: u16) -> Agent {
    let program = find("claude");
    let words = [
        "-p",
        "go",
        "--dangerously-skip-permissions",
        "--output-format",
        "stream-json",
        "--verbose",
    ];
    Agent {
        folder: folder_of(&program),
        command: command(&program, &words),
        environment: pairs(&[
            ("ANTHROPIC_BASE_URL", &format!("http://127.0.0.1:{model_port}")),
            ("ANTHROPIC_API_KEY", "sk-ant-test"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            // Without it the program refuses to skip its own permissions as root.
            ("IS_SANDBOX", "1"),
        ]),
        files: Vec::new(),
    }
}

/// Codex. Its tool is `exec_command` {cmd}.
pub fn codex(model_port: u16) -> Agent {
    let program = find("codex");
    let words = [
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "--json",
        "go",
    ];
    let settings = format!(
        "model = \"scripted\"\nmodel_provider = \"local\"\n\n[model_providers.local]\nname = \"local\"\n\
         base_url = \"http://127.0.0.1:{model_port}/v1\"\nwire_api = \"responses\"\nenv_key = \"LOCAL_KEY\"\n"
    );
    Agent {
        folder: folder_of(&program),
        command: command(&program, &words),
        environment: pairs(&[("LOCAL_KEY", "sk-local-test")]),
        files: vec![(".codex/config.toml".into(), settings)],
    }
}

/// opencode. Its tool is `bash` {command, description}.
pub fn opencode(model_port: u16) -> Agent {
    let program = find("opencode");
    let settings = format!(
        "{{\"$schema\": \"https://opencode.ai/config.json\", \"autoupdate\": false, \"permission\": \"allow\",\n\
         \"model\": \"anthropic/claude-sonnet-4-5\", \"small_model\": \"anthropic/claude-sonnet-4-5\",\n\
         \"provider\": {{\"anthropic\": {{\"options\": {{\"baseURL\": \"http://127.0.0.1:{model_port}/v1\", \"apiKey\": \"x\"}}}}}}}}\n"
    );
    Agent {
        folder: folder_of(&program),
        command: command(&program, &["run", "go"]),
        environment: pairs(&[
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ]),
        files: vec![(".config/opencode/opencode.json".into(), settings)],
    }
}

/// Gemini CLI. Its tool is `run_shell_command` {command, description}.
pub fn gemini(model_port: u16) -> Agent {
    let program = find("gemini");
    Agent {
        folder: folder_of(&program),
        command: command(&program, &["--yolo", "--skip-trust", "-p", "go"]),
        environment: pairs(&[
            ("GOOGLE_GEMINI_BASE_URL", &format!("http://127.0.0.1:{model_port}")),
            ("GEMINI_API_KEY", "test"),
            ("GEMINI_MODEL", "gemini-2.5-pro"),
        ]),
        files: vec![(
            ".gemini/settings.json".into(),
            "{\"security\": {\"auth\": {\"selectedType\": \"gemini-api-key\"}}}\n".into(),
        )],
    }
}

/// goose. Its tool is `shell` {command}.
pub fn goose(model_port: u16) -> Agent {
    let program = find("goose");
    Agent {
        folder: folder_of(&program),
        command: command(&program, &["run", "-t", "go"]),
        environment: pairs(&[
            ("GOOSE_PROVIDER", "anthropic"),
            ("GOOSE_MODEL", "claude-sonnet-4-5"),
            ("GOOSE_MODE", "auto"),
            ("GOOSE_DISABLE_KEYRING", "1"),
            ("ANTHROPIC_HOST", &format!("http://127.0.0.1:{model_port}")),
            ("ANTHROPIC_API_KEY", "sk-ant-test"),
        ]),
        files: Vec::new(),
    }
}

fn command(program: &Path, words: &[&str]) -> Vec<String> {
    let program = program.to_str().expect("the cache's path is text").to_owned();
    std::iter::once(program)
        .chain(words.iter().map(|word| (*word).to_owned()))
        .collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// The `node_modules` folder that a program from npm lies in, or the program's own folder.
fn folder_of(program: &Path) -> PathBuf {
    program
        .ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "node_modules"))
        .or_else(|| program.parent())
        .expect("a program lies in a folder")
        .to_owned()
}

/// Finds a program in the cache of `./scripts/test`, then along `PATH`.
fn find(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    caches()
        .into_iter()
        .map(|cache| cache.join("node_modules/.bin"))
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
        .unwrap_or_else(|| panic!("the program `{name}` is not installed: run ./scripts/test, which installs it"))
}

/// Where `./scripts/test` installs what tests need.
pub(crate) fn caches() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let caches = [
        variable("BAILIWICK_TEST_CACHE"),
        Some(PathBuf::from("/var/cache/bailiwick-test")),
        variable("HOME").map(|home| home.join(".cache/bailiwick-test")),
    ];
    caches.into_iter().flatten().collect()
}
