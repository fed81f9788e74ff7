"""Posts one JSON body to one URL and exits: run by ``on_event.py`` as a program of its own, standard library only.

The URL comes on stdin and is never printed, for it may hold a token. The agent itself never speaks HTTP.
"""

from __future__ import annotations

import json
import sys
from types import TracebackType
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener


class _NoRedirect(HTTPRedirectHandler):
    """What would follow is a GET without the body."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def main(limit_s: float) -> str | None:
    """Post what stdin says; what is returned instead of None goes to stderr, in one line."""
    asked = json.load(sys.stdin)
    headers = {"Content-Type": "application/json", "User-Agent": "remuster"}
    request = Request(asked["url"], json.dumps(asked["body"]).encode(), headers)  # noqa: S310  http or https: checked
    try:
        with build_opener(_NoRedirect).open(request, timeout=limit_s):
            return None
    except HTTPError as error:
        return f"the server answers {error.code}"
    except URLError as error:
        return f"no connection: {getattr(error.reason, 'strerror', None) or type(error.reason).__name__}"
    except OSError as error:
        return f"no answer: {error.strerror or type(error).__name__}"


def _briefly(kind: type[BaseException], _: BaseException, __: TracebackType | None) -> None:
    print(f"no answer that could be read: {kind.__name__}", file=sys.stderr)  # its words might quote the URL


if __name__ == "__main__":
    sys.excepthook = _briefly
    sys.exit(main(float(sys.argv[1])))
