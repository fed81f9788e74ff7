"""One module for each framework's checkpoints: is this one whole, how is that known, and if not, what is wrong?

None of them imports its framework: they read names, sizes, markers and checksums, and pickles by an interpreter that
constructs nothing. What a format cannot show is said in docs/checkpoints.md; what none of them knows is ``Unknown``,
never whole.
"""
