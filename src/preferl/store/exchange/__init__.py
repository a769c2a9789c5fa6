"""Move answers and clips out of a store and into another one."""
