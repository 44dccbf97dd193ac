"""From `hookyard up` to ready."""

from __future__ import annotations

import time
from typing import Any

from bench.stage import folder
from tests.acceptance.product import Product


def play() -> dict[str, Any]:
    """The first start of an installation, which makes its servers' data and its schema, and a later one."""
    with folder() as place:
        product = Product(place)
        try:
            first = _seconds_to_ready(product)
            product.stop()
            return {"first_start_seconds": first, "later_start_seconds": _seconds_to_ready(product)}
        finally:
            product.destroy()


def _seconds_to_ready(product: Product) -> float:
    began_at = time.monotonic()
    product.start()
    return round(time.monotonic() - began_at, 2)
