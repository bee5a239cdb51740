"""Whether a test fails for every condition and every index of the rules: `make mutants`.

Each mutant is one rule file with one condition deleted, one index swapped or one operand left out.
Tests run with it in a child process; no file is touched. A mutant that no test fails for survives:
the condition goes, a test comes, or `equivalents.toml` says why both mean the same.
"""
