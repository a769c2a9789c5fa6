"""From the words of a command line to a command's config."""
