//! The tool gate: MCP in, MCP out.
