"""HTTP headers of the pages: nothing from elsewhere, nothing inline, no frames."""

from __future__ import annotations

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""The Content-Security-Policy of every answer of the dashboard."""

SECURITY = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of every answer of the dashboard."""

PAGE = SECURITY | {"Cache-Control": "no-store", "Vary": "HX-Request, Cookie"}
"""Headers of pages; numbers are never kept by anybody in between."""

FILE = SECURITY | {"Cache-Control": "public, max-age=31536000, immutable"}
"""Headers of static files, whose addresses change with them."""
