//! Every limit of the network gate, in one place.
//!
//! Promises: P4 (what passes a limit is refused, never cut to fit). Trust: all that is measured here is chosen by the
//! agent, or by a server it talks to; either may want the gate to run out of memory, descriptors or patience.

use std::time::Duration;

/// Largest head of a request or of an answer, in bytes.
pub const HEAD_BYTES: usize = 64 * 1024;

/// Most header lines in a head.
pub const HEAD_LINES: usize = 200;

/// Most that is held of one HTTP connection in one direction, in bytes. What does not fit waits at the sender.
pub const BUFFER_BYTES: usize = 128 * 1024;

/// How long a client may take to send a whole head; also how long a kept-open connection may wait for the next one.
pub const HEAD_TIME: Duration = Duration::from_secs(75);

/// Largest body that is read whole before it is sent, so that a stand-in in it stops it altogether.
pub const SMALL_BODY: u64 = 64 * 1024;

/// Largest body in which a secret may stand, or that is signed, in bytes: it is read whole.
pub const SECRET_BODY: u64 = 1024 * 1024;

/// How much of an answer to a login is read before any of it goes on, in bytes.
pub const TOKEN_ANSWER: usize = 64 * 1024;

/// How long one request of the daemon's own may take in all.
pub const FETCH_TIME: Duration = Duration::from_secs(20);

/// Most connections that one service serves at once. More wait to be accepted.
pub const CONNECTIONS: usize = 8192;

/// Largest TLS greeting that is read, in bytes.
pub const GREETING_BYTES: usize = 64 * 1024;

/// How long the TLS greeting in a tunnel may take.
pub const GREETING_TIME: Duration = Duration::from_secs(10);

/// How long a client that came without a proxy may be silent before it is taken for one that lets the server speak first.
pub const SILENCE: Duration = Duration::from_millis(200);

/// How long such a client may take to say what it speaks, once it has begun.
pub const OPENING_TIME: Duration = Duration::from_secs(2);

/// How long the same stray datagram is not put on record again.
pub const STRAY_TIME: Duration = Duration::from_secs(60);

/// Most targets of stray datagrams that are put on record in that time.
pub const STRAYS: usize = 256;

/// How long a stream may be silent in both directions before it is closed.
pub const IDLE_TIME: Duration = Duration::from_secs(60 * 60);

/// How long a look-up of a name may take.
pub const LOOKUP_TIME: Duration = Duration::from_secs(10);

/// How long a connection to one address may take to come about.
pub const DIAL_TIME: Duration = Duration::from_secs(10);

/// Most addresses of one name that are tried.
pub const ADDRESSES: usize = 8;

/// How long a looked-up name is believed on one kept-open client connection.
pub const NAME_TIME: Duration = Duration::from_secs(30);

/// Most looked-up names that are kept for one client connection.
pub const NAMES_KEPT: usize = 16;

/// How long the gate stays after its channel is lost, so that refusals reach those who wait for an answer.
pub const LAST_WORDS: Duration = Duration::from_millis(150);

/// Largest DNS message that is read, in bytes (RFC 1035, section 4.2.1, allows 512; EDNS clients send a little more).
pub const DNS_BYTES: usize = 1232;

/// How long a client may take to send one DNS message over TCP.
pub const DNS_TIME: Duration = Duration::from_secs(10);

/// Most DNS questions from datagrams that wait for the mediator at once. More are dropped, and the client asks again.
pub const DNS_QUESTIONS: usize = 256;

/// How long a client may believe an answer of the DNS service, in seconds.
pub const DNS_TTL: u32 = 5;

/// Most names that have an address of the gate's own at once. The one that was used longest ago goes first.
pub const SYNTHETIC_NAMES: usize = 65_000;

/// Size of the buffer for each direction of a tunnel, in bytes.
pub const TUNNEL_BUFFER: usize = 64 * 1024;

/// What is taken of a stream under TLS at once while much comes, in bytes: some records, and less than what an allocator takes
/// for large.
pub const GULP: usize = 60 * 1024;

/// How much a read must have brought for the next one to be so large, in bytes: what the TLS library asks for.
pub const GULP_FROM: usize = 4096;

/// Most hosts whose certificates are kept. More are signed anew.
pub const HOSTS_SERVED: usize = 256;

/// Most TLS sessions of clients that can be taken up again, for each host.
pub const SESSIONS: usize = 64;

/// How long a TLS handshake may take, with a client after its greeting or with a server.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// How long a connection to a server waits for its next request where the server does not say. Many close after five seconds.
pub const LINK_TIME: Duration = Duration::from_secs(4);

/// The longest that one waits where the server does say.
pub const LINK_TIME_SAID: Duration = Duration::from_secs(30);

/// How long a connection of HTTP/2 to a server waits, which says when it closes.
pub const LINK_TIME_MANY: Duration = Duration::from_secs(60);

/// How often waiting connections are looked at.
pub const TIDY_TIME: Duration = Duration::from_secs(1);

/// Most connections to servers that wait.
pub const LINKS_KEPT: usize = 256;

/// Most of them to one and the same server.
pub const LINKS_KEPT_ALIKE: usize = 64;

/// Most requests under way on one connection of HTTP/2.
pub const STREAMS: usize = 100;

/// Most requests under way on all connections of HTTP/2 from clients.
pub const EXCHANGES: usize = 1024;

/// What may be on its way to the gate on one stream of HTTP/2, in bytes.
pub const STREAM_WINDOW: u32 = 512 * 1024;

/// What may be on its way to the gate on one connection of HTTP/2, in bytes.
pub const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// What the gate holds of one stream of HTTP/2 that it sends, in bytes.
pub const STREAM_BUFFER: usize = 64 * 1024;

/// Largest head on HTTP/2, in bytes as RFC 9113 counts them.
pub const HEADER_LIST: u32 = 64 * 1024;

/// Most streams of HTTP/2 that were reset and are remembered.
pub const RESETS: usize = 20;

/// How often a client of HTTP/2 is asked whether it is still there, and how long it may take to say so.
pub const PULSE: Duration = Duration::from_secs(30);

/// How much of the body of a refused request is read before the refusal is sent, in bytes.
pub const READ_AWAY: usize = 256 * 1024;

/// How long that may take.
pub const READ_AWAY_TIME: Duration = Duration::from_millis(500);
