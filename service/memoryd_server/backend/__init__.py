"""Who answers for an agent: the builtin engine now, and what keeps its index in line with the files."""
