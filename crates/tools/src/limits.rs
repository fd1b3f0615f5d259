//! Every limit of the tool gate, in one place.
//!
//! Promises: P4 (what passes a limit is refused, never cut to fit). Trust: all that is measured here is chosen by the
//! agent, or by a tool server; either may want the gate to run out of memory, descriptors or patience.

use std::time::Duration;

/// Most calls of which a person is to choose one.
pub const OPTIONS: usize = 8;

/// Largest message of the agent, in bytes.
pub const MESSAGE: usize = 4 * 1024 * 1024;

/// Largest message of a server, in bytes, where its configuration says nothing else.
pub const ANSWER: usize = 16 * 1024 * 1024;

/// Largest arguments of one call, in bytes of JSON: they must fit into a frame to the mediator.
pub const ARGUMENTS: usize = 160 * 1024;

/// Deepest nesting of a message.
pub const DEPTH: usize = 64;

/// Largest reason that goes with a call, in characters.
pub const REASON: usize = 2048;

/// Longest name of a tool that is shown to clients: several refuse longer ones.
pub const WIRE_NAME: usize = 64;

/// Longest name of a tool, a prompt or a resource that a server may have, in bytes.
pub const OFFERED_NAME: usize = 1024;

/// Most tools, and most prompts and resources, of one server.
pub const OFFERED: usize = 4096;

/// Most pages of one list that are asked for.
pub const PAGES: usize = 256;

/// Most bytes of JSON of one list of a server, over all its pages.
pub const LISTED: usize = 16 * 1024 * 1024;

/// Largest definition of one tool, in bytes of JSON.
pub const DEFINITION: usize = 256 * 1024;

/// How long a server may take to be started and to greet, where its configuration says nothing else.
pub const START_TIME: Duration = Duration::from_secs(60);

/// How long a call may take, where the configuration says nothing else. Waiting for a person does not count.
pub const CALL_TIME: Duration = Duration::from_secs(600);

/// Most calls that one server works on at once, where its configuration says nothing else. More wait.
pub const PENDING: usize = 64;

/// Most calls of all clients that are under way, those that wait for a person among them. As many more wait for one of these to
/// end; more than that are refused.
pub const CALLS: usize = 512;

/// How long a call waits for another to end. Those that were given up leave as soon as the mediator has answered them.
pub const PLACE_TIME: Duration = Duration::from_secs(5);

/// Most that a server may say in one second without having been asked, where its configuration says nothing else.
pub const NOTIFICATIONS: u32 = 200;

/// Most requests that one server may have open towards the client.
pub const REVERSED: usize = 8;

/// Most rounds of one call in which a server asks for more input.
pub const ROUNDS: usize = 10;

/// How many lines in a row that are no messages end a server.
pub const GARBAGE: u32 = 16;

/// How often in a row a server may fail to start, or crash, before it is left alone for [`CRASH_REST`].
pub const CRASHES: u32 = 5;

/// How long a server that crashed too often is left alone.
pub const CRASH_REST: Duration = Duration::from_secs(60);

/// How often the client hears that a call waits, where it gave a progress token.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Most connections at once. More wait to be accepted.
pub const CONNECTIONS: usize = 64;

/// Most sessions over HTTP at once. More are refused.
pub const SESSIONS: usize = 256;

/// How long a session over HTTP may be silent. Long: while a person is asked, nothing may be said in it.
pub const SESSION_TIME: Duration = Duration::from_secs(12 * 60 * 60);

/// How long a connection may take to say its token.
pub const TOKEN_TIME: Duration = Duration::from_secs(10);

/// Longest token line, in bytes.
pub const TOKEN_LINE: usize = 256;

/// How long a kept-open HTTP connection may take for a head.
pub const HEAD_TIME: Duration = Duration::from_secs(75);

/// How long what is left to say to a server or a client may take.
pub const LAST_WORDS: Duration = Duration::from_secs(1);

/// Most handles that the gate keeps for a task. The oldest go first.
pub const HANDLES: usize = 4096;

/// Most bytes of JSON behind all handles of a task. The oldest go first.
pub const HANDLE_BYTES: usize = 64 * 1024 * 1024;

/// Longest summary of a value behind a handle, in bytes.
pub const SUMMARY: usize = 2048;

/// Longest text of a server that stands in the gate's own words to people, in characters.
pub const QUOTED: usize = 400;

/// Largest body of an answer of a remote server, and largest event of its stream, in bytes.
pub const REMOTE_ANSWER: usize = 16 * 1024 * 1024;

/// Longest instructions of all servers together that are shown to the client, in bytes.
pub const INSTRUCTIONS: usize = 32 * 1024;

/// Most resources that one client is told about when they change.
pub const SUBSCRIPTIONS: usize = 256;

/// How long a call waits for a client of the newest revision to come back with what was needed.
pub const HELD_TIME: Duration = Duration::from_secs(600);

/// Most requests of one client that have no answer yet. What comes after them is read when there is room.
pub const OPEN: usize = 1024;

/// How long a server may take to read one message.
pub const WRITE_TIME: Duration = Duration::from_secs(30);
