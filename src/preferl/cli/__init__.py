"""The command line: parse a config, call one function."""
