//! The network gate: HTTP, CONNECT by name, DNS.
