//! Listing what servers offer, so that it can be pinned.
//!
//! Promises: P8 (what is shown for pinning is what the server says, whole). Trust: servers are hostile; each is started in
//! its own fence, asked for its lists, and ended. Nothing of theirs is called.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::backing::Backing;
use crate::config::{Config, ServerConfig};
use crate::definition::{Definition, Kind};
use crate::limits;
use crate::lock::Offered;
use crate::offers;
use crate::upstream::{Connection, start};

/// How many servers are asked at once.
const AT_ONCE: usize = 8;

/// Starts each server, asks what it offers, and ends it. An error for a server says why it could not be asked. Blocks;
/// makes a runtime of its own.
pub fn survey(config: &Config, backing: &Arc<dyn Backing>) -> io::Result<BTreeMap<String, Result<Offered, String>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let all = runtime.block_on(survey_all(config, backing));
    // Servers are ended on threads of the runtime's: it waits for them.
    runtime.shutdown_timeout(limits::START_TIME);
    Ok(all)
}

async fn survey_all(config: &Config, backing: &Arc<dyn Backing>) -> BTreeMap<String, Result<Offered, String>> {
    let places = Semaphore::new(AT_ONCE);
    let asked: FuturesUnordered<_> = config
        .servers
        .iter()
        .map(|server| async {
            let _place = places.acquire().await;
            (server.name.clone(), ask(server, Arc::clone(backing)).await)
        })
        .collect();
    asked.collect().await
}

async fn ask(server: &ServerConfig, backing: Arc<dyn Backing>) -> Result<Offered, String> {
    let time = Duration::from_secs(server.limits.start_seconds);
    let ending = Arc::clone(&backing);
    match timeout(time, start(server, Weak::new(), backing)).await {
        Ok(Ok(connection)) => {
            let mut offered = Offered::clone(&connection.offered());
            let more = timeout(time, more(&connection, &mut offered)).await;
            more.map_err(|_| format!("it did not list what it offers within {} s", time.as_secs()))?;
            Ok(offered)
        }
        failed => {
            let name = server.name.clone();
            let _ = tokio::task::spawn_blocking(move || ending.end(&name)).await;
            match failed {
                Ok(Err(why)) => Err(why),
                _ => Err(format!("it did not greet within {} s", time.as_secs())),
            }
        }
    }
}

/// Adds what it offers beside tools. What cannot be listed is left out, and so not pinned.
async fn more(connection: &Connection, offered: &mut Offered) {
    let capabilities = connection
        .info()
        .map(|info| info.capabilities.clone())
        .unwrap_or_default();
    if capabilities.prompts.is_some() {
        for prompt in offers::prompts_of(connection).await {
            offered.take(Kind::Prompt, Definition::of(&prompt));
        }
    }
    if capabilities.resources.is_some() {
        let resources = offers::resources_of(connection).await;
        offered.resources = resources.into_iter().map(|resource| resource.uri).collect();
        for template in offers::templates_of(connection).await {
            offered.take(Kind::Template, Definition::of(&template));
        }
    }
}
