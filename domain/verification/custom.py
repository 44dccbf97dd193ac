"""`hmac`: for senders of their own kind, a recipe that people write with options."""

import re
from functools import lru_cache

from domain.verification.mac import HEADER, PLACEHOLDER, SIZES, Mac, Recipe, check_content
from domain.verification.scheme import Options, check_header_name

ENCODINGS = ("hex", "base64")
TEXT = re.compile(r"[ -~]{0,200}")


class Custom(Mac):
    """Verifies and signs as the options say."""

    name = "hmac"
    summary = "an HMAC of your own description: --verify-header and its companions"
    takes = "the key, any text"
    dedupe = "header:webhook-id"
    type = "json:/type"
    options = {  # noqa: RUF012 - never changed
        "header": None,
        "algorithm": "sha256",
        "encoding": "hex",
        "prefix": "",
        "content": "{body}",
        "timestamp": "webhook-timestamp",
        "id": "webhook-id",
        "url": "",
    }

    def recipe_of(self, options: Options) -> Recipe:
        """What the options describe. Several signatures may stand in the header."""
        return _recipe(*(options.get(name, default or "") for name, default in self.options.items() if name != "url"))

    def check_options(self, options: Options) -> None:
        """Returns if the options describe a signature. Raises: ValueError."""
        timestamp = options["timestamp"]
        super().check_options(options if not timestamp.endswith("=") else {**options, "timestamp": timestamp[:-1]})
        for name, allowed in (("algorithm", tuple(SIZES)), ("encoding", ENCODINGS)):
            if options[name] not in allowed:
                raise ValueError(f"--verify-{name} {options[name]!r}: {', '.join(allowed)} are allowed")
        for name in ("prefix", "content"):
            if not TEXT.fullmatch(options[name]):
                raise ValueError(f"--verify-{name} is at most 200 characters of printable ASCII")
        check_content(options["content"])
        for name in PLACEHOLDER.findall(options["content"]):
            if name == "url" and not options["url"]:
                raise ValueError("{url} in --verify-content needs --verify-url")
            if name.startswith(HEADER):
                check_header_name("--verify-content", name.removeprefix(HEADER))


@lru_cache(maxsize=1024)
def _recipe(header: str, algorithm: str, encoding: str, prefix: str, content: str, timestamp: str, id_: str) -> Recipe:
    named = PLACEHOLDER.findall(content)
    return Recipe(
        header=header,
        algorithm=algorithm,
        encoding=encoding,
        prefix=prefix,
        separators="" if set(",; ") & set(prefix) else ",; ",
        content=content,
        timestamp=timestamp if "timestamp" in named else "",
        unit="any",
        id=id_ if "id" in named else "",
        any_case=encoding == "hex",
    )
