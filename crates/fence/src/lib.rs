//! What the kernel enforces round a task: launcher and sandbox.
