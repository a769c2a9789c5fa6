"""Decision Transformers: agents, policies, sequences and the hub."""
