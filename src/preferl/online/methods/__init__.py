"""What published methods of learning from preferences add to the online loop."""
