"""The reward service, its heartbeats, and the supervision of programs."""
