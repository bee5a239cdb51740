"""The version of this package. May import: nothing."""

VERSION = "0.1.0"
