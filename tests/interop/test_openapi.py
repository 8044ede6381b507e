# SPDX-License-Identifier: Apache-2.0
"""schemathesis against plexrld by TCP, by what doc/openapi.yaml promises: good and bad requests, wrong
tokens, wrong methods. No server error, no other status and no other form of an answer than is written
there.
"""
import pathlib
import subprocess
import sys

from service import free_port
from test_openai import WIDE, ByteService

TOP = pathlib.Path(__file__).resolve().parents[2]
# Not asked: that all that has the form is taken. A schema cannot say what fits a context, a vocabulary
# or the service's other limits.
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
          "negative_data_rejection,missing_required_header,unsupported_method,allow_header_conformance,ignored_auth")


def main():
    service = ByteService(pathlib.Path(sys.argv[1]), WIDE, http_address=f"127.0.0.1:{free_port()}")
    try:
        _, token = service.open_job(1, "none", env="openai")
        # It keeps notes in the folder where it runs.
        subprocess.run([pathlib.Path(sys.executable).with_name("schemathesis"), "run", TOP / "doc" / "openapi.yaml",
                        "--url", f"http://{service.http_address}", "--header", f"X-API-Key: {token}", "--checks", CHECKS,
                        "--phases", "examples,coverage,fuzzing", "--max-examples", "25", "--seed", "1", "--generation-database", "none",
                        "--request-timeout", "60", "--no-color", "--warnings", "off"], check=True,
                       cwd=service.directory)
    finally:
        service.stop()


if __name__ == "__main__":
    main()
