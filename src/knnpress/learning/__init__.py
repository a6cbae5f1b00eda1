"""How prototypes are learned: a start, a setting chosen by cross-validation, and one descent. Read `fit` first."""
