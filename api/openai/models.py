"""`GET /v1/models`: what is served here, in OpenAI's shape."""

from fastapi import APIRouter

from api.deps import Context, Reader
from api.openai.fields import ALIASES
from api.schemas import ModelList, ModelView
from core.checkpoints import ServedModel, get_model, served_models

router = APIRouter(prefix="/v1/models", tags=["OpenAI-compatible"])

CREATED = 1_767_225_600
"""OpenAI's clients want a time; checkpoints have none, so all share 2026-01-01."""


@router.get("")
def list_models(context: Context, _caller: Reader) -> ModelList:
    """List the served models, the default first."""
    return ModelList(data=[_view(model) for model in served_models(context.settings)])


@router.get("/{model_name:path}")
def show_model(context: Context, _caller: Reader, model_name: str) -> ModelView:
    """Show one model; OpenAI's own names mean the default."""
    name = None if model_name in ALIASES else model_name
    return _view(get_model(context.settings, name))


def _view(model: ServedModel) -> ModelView:
    owner = model.source.split("/")[0] if model.folder is None else "local"
    return ModelView(id=model.name, created=CREATED, owned_by=owner)
