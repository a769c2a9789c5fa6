"""An offline run of all conditions, from its inputs to its report."""
