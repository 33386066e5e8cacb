"""What docs/streams.md has a reader try goes on where the first connection was hung up."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.real_server import LIMIT_S, RealServer

PAGE = (Path(__file__).parents[2] / "docs" / "streams.md").read_text()


@pytest.mark.native
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs the Debian package curl")
def test_what_the_page_has_one_try_goes_on(shared_server: RealServer, tmp_path: Path) -> None:
    (example,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    command = example.replace("http://127.0.0.1:8000", shared_server.url).replace("smollm2", "tiny")
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, timeout=LIMIT_S, check=True, text=True, cwd=tmp_path
    )
    numbers = [
        int(number) for number in re.findall(r"^id: [0-9a-f]{32}\.1\.(\d+)$", done.stdout, re.MULTILINE)
    ]
    assert len(numbers) > 2
    assert numbers == list(range(1, len(numbers) + 1))
    assert done.stdout.endswith("data: [DONE]\n\n")
