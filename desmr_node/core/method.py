"""Which numerical method this release computes by."""

#: Raise it whenever the same rows and settings could give other bits, or other words in a record of a sum,
#: or when members would wait for a record that others do not send: since 2, all confirm that they are done.
#: Every member decides for itself, from the same totals, which lambda is best and when to stop: with two
#: methods in one fit they would end with different models and never know. So neighbours that differ refuse
#: each other, whatever wire version they have in common (docs/decisions/0010-versions.md).
METHOD = 2
