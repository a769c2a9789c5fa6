"""What tests share beside fixtures: worlds, files, requests, and programs that they start."""
