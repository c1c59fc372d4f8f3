"""The strategies: each looks at the facts and says what it expects of itself, on which numbers, or why it is no use."""
