"""PTX text: what it says, as data. Nothing here runs it."""
