"""Language models: a tiny one built here, loading, and import from GGUF. Modules that need torch import it lazily."""

from bidirl.runtime.language_models.config import TinyModelConfig

__all__ = ["TinyModelConfig"]
