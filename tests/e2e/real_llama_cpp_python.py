"""Where `make test-engines` builds llama-cpp-python."""

from tests.e2e.agent import REPOSITORY

PYTHON = REPOSITORY / ".venv-llama-cpp-python" / "bin" / "python"
