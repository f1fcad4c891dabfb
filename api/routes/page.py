"""The page at `/`: static files of this package, nothing from elsewhere."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

router = APIRouter(include_in_schema=False)

WEB = Path(__file__).parent.parent / "web"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@router.get("/")
async def page() -> FileResponse:
    """Serve the page."""
    return FileResponse(WEB / "index.html", headers=HEADERS)


@router.get("/web/page.js")
async def script() -> FileResponse:
    """Serve its script."""
    return FileResponse(WEB / "page.js", media_type="text/javascript", headers=HEADERS)


@router.get("/web/page.css")
async def style() -> FileResponse:
    """Serve its style."""
    return FileResponse(WEB / "page.css", headers=HEADERS)
