"""Validates RO-Crates with roc-validator, without a network: the JSON-LD context of RO-Crate 1.1
comes from the package rocrate instead of w3id.org. Usage: check_crate.py CRATE_DIRECTORY...

Required findings fail, and so do recommended ones. Exceptions are findings about what a run cannot
know: its owner, its licence, and addresses on the web."""
import pathlib
import sys

import requests
import rocrate
from rocrate_validator import services
from rocrate_validator.models import Severity

PROFILE = "process-run-crate-0.5"
CONTEXT = "https://w3id.org/ro/crate/1.1/context"
CONTEXT_FILE = pathlib.Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld"
UNKNOWABLE = (
    "representing the schema_org:license type",
    "representing the `author` of the RO-Crate",
    "`publisher` property of a `Root Data Entity`",
    "The organization SHOULD have a URL",
    "The Application SHOULD have a url",
    "The SoftwareApplication id SHOULD be an absolute URI",
    "The SoftwareSourceCode or ComputationalWorkflow SHOULD have a version",
)


def answer(_adapter, request, **_options):
    """Stands in for the network."""
    response = requests.Response()
    response.request, response.url = request, request.url
    response.status_code, content = 404, b""
    if request.url == CONTEXT:
        response.status_code, content = 200, CONTEXT_FILE.read_bytes()
        response.headers["Content-Type"] = "application/ld+json"
    response._content = content
    return response


def check(crate):
    settings = services.ValidationSettings(
        rocrate_uri=crate, profile_identifier=PROFILE, requirement_severity=Severity.RECOMMENDED,
        no_cache=True)
    good = True
    for issue in services.validate(settings).get_issues():
        message = str(issue.message)
        if issue.severity != Severity.REQUIRED and any(part in message for part in UNKNOWABLE):
            continue
        print(f"{crate}: {issue.severity.name}: {message}")
        good = False
    return good


def main():
    requests.adapters.HTTPAdapter.send = answer
    failed = [crate for crate in sys.argv[1:] if not check(crate)]
    return 1 if failed or not sys.argv[1:] else 0


sys.exit(main())
