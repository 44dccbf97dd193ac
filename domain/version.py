"""The product's version, as `user-agent` and `hookyard --version` tell it; pyproject.toml says the same (a test
compares).
"""

VERSION = "0.1.0"
