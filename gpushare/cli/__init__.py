"""The command line: thin, on top of the state API and the playground."""
