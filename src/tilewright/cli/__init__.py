"""The command line: one file per verb. Each parses, makes one library call and draws what comes back."""
