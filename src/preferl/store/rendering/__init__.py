"""Pictures and videos of clips."""
