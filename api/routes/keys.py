"""API keys, for administrators; the first comes from the command line."""

from uuid import UUID

from fastapi import APIRouter, Request, Response, status

from api.deps import Administrator, Reading, Uow, now
from api.idempotency import IdempotencyKey, create_once, parse_once
from api.ids import parse_id
from api.key_schemas import CreatedKey, KeyChange, KeyCreation, KeyList, KeyView
from core.errors import NotFound
from lifecycle.keys import create_key, list_keys, revoke_key
from lifecycle.limits import check_own_limits
from models import LOCAL_KEY_ID, ApiKey

router = APIRouter(prefix="/v1/keys", tags=["keys"])


@router.post("", status_code=status.HTTP_201_CREATED)
def create(  # noqa: PLR0917 - FastAPI passes them by name
    request: Request,
    response: Response,
    uow: Uow,
    caller: Administrator,
    creation: KeyCreation,
    idempotency_key: IdempotencyKey = None,
) -> CreatedKey:
    """Make a key. The answer holds it; it is not shown again."""
    limits = check_own_limits(creation.limits)

    def make() -> tuple[UUID, CreatedKey]:
        row, new = create_key(uow, name=creation.name, scopes=creation.scopes, now=now())
        row.limits = limits
        uow.session.flush()
        return row.id, CreatedKey(**KeyView.of(row).model_dump(), key=new.secret)

    view = create_once(
        uow,
        parse_once(request, caller, idempotency_key, creation.model_dump(mode="json")),
        make,
        status=status.HTTP_201_CREATED,
        location=_location,
    )
    response.headers["Location"] = _location(view.id)
    return view


@router.get("")
def list_all(session: Reading, _caller: Administrator) -> KeyList:
    """List all keys."""
    return KeyList(data=[KeyView.of(row) for row in list_keys(session)])


@router.patch("/{key_id}")
def change(uow: Uow, _caller: Administrator, key_id: str, change: KeyChange) -> KeyView:
    """Replace a key's limits."""
    wanted = parse_id(key_id, "API key")
    row = None if wanted == LOCAL_KEY_ID else uow.session.get(ApiKey, wanted)
    if row is None:
        raise NotFound(f"There is no API key {wanted}.")
    row.limits = check_own_limits(change.limits)
    return KeyView.of(row)


@router.delete("/{key_id}")
def revoke(uow: Uow, _caller: Administrator, key_id: str) -> KeyView:
    """Revoke a key; its jobs stay. Doing it twice is harmless."""
    return KeyView.of(revoke_key(uow, parse_id(key_id, "API key"), now=now()))


def _location(key_id: UUID) -> str:
    return f"/v1/keys/{key_id}"
