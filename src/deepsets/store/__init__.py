"""Model folders: `config.json`, `model.safetensors` and a model card. Data, never code."""

from ._config import ModelFolderError as ModelFolderError
from ._folder import check_free as check_free
from ._folder import load as load
from ._folder import save as save
