"""State of agents, environments and policies, saved and resumed."""
