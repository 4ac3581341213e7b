"""Validates the RO-Crate in a directory as a Process Run Crate 0.5, without a network.

    build/venv/bin/python tests/support/crate_check.py DIRECTORY

The validator wants to download the crate's JSON-LD context. The package rocrate carries the very
file; it is put into the validator's HTTP cache, and the validator runs in its offline mode.
Prints one line for each requirement not met; exit code 0 if there is none, 1 otherwise.
"""

import importlib.util
import io
import pathlib
import sys
import tempfile

import requests
import urllib3
from rocrate_validator import services
from rocrate_validator.models import Severity, ValidationSettings
from rocrate_validator.utils.http import HttpRequester

CONTEXT_URL = "https://w3id.org/ro/crate/1.1/context"
PROFILE = "process-run-crate"


class FromPackage(requests.adapters.HTTPAdapter):
    """Answers every request for the context from the package, and refuses all others."""

    def send(self, request, **_):
        if request.url != CONTEXT_URL:
            raise requests.ConnectionError(f"{request.url}: only {CONTEXT_URL} is at hand")
        # Found, not imported: importing it would want dependencies that a data file does not need.
        package = pathlib.Path(importlib.util.find_spec("rocrate").origin).parent
        raw = urllib3.HTTPResponse(
            body=io.BytesIO((package / "data" / "ro-crate.jsonld").read_bytes()),
            headers={"Content-Type": "application/ld+json"},
            status=200,
            preload_content=False,
            request_url=request.url,
        )
        return self.build_response(request, raw)


def warm(cache):
    HttpRequester.initialize_cache(cache_path=cache, cache_max_age=-1, offline=False)
    session = HttpRequester().session
    session.mount("https://", FromPackage())
    session.get(CONTEXT_URL).raise_for_status()


def main(crate):
    with tempfile.TemporaryDirectory() as scratch:
        cache = str(pathlib.Path(scratch) / "http")
        warm(cache)
        settings = ValidationSettings(
            rocrate_uri=crate,
            profile_identifier=PROFILE,
            requirement_severity=Severity.REQUIRED,
            offline=True,
            cache_path=cache,
            cache_max_age=-1,
        )
        result = services.validate(settings)
    for issue in result.get_issues():
        print(f"{issue.check.identifier} {issue.severity.name}: {issue.message}")
    checks = len(result.executed_checks)
    print(f"{crate}: {checks} checks of {PROFILE}, {len(result.get_issues())} not met")
    return 0 if result.passed() and checks > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
