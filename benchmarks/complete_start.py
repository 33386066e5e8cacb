"""How long an editor waits for `headway complete` to get going: from starting the process to its request on the socket.

    .venv/bin/python benchmarks/complete_start.py [--repeat 20] [--https-client]

Prints one JSON object with milliseconds: of the whole start, and of Python alone (`python -c pass`), which is part of it.
`--https-client` has the request go through httpx2, as it does where an address needs TLS or a proxy: a proxy is named for
another scheme. The server is a socket here that answers 400.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

REQUEST = b'{"prefix": "def f"}\n'
ANSWER = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def start_ms(listener: socket.socket, environment: dict[str, str]) -> float:
    """Start the command once and return when its request was there."""
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    command = [sys.executable, "-m", "headway.cli.main", "complete", "--stdin", "--url", url]
    start_ns = time.perf_counter_ns()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdin is not None
        process.stdin.write(REQUEST)
        process.stdin.close()
        connection, _ = listener.accept()
        with connection:
            data = b""
            while b'"prompt"' not in data:
                data += connection.recv(1 << 16)
            took_ns = time.perf_counter_ns() - start_ns
            connection.sendall(ANSWER)
    return took_ns / 1e6


def python_ms(environment: dict[str, str]) -> float:
    start_ns = time.perf_counter_ns()
    subprocess.run([sys.executable, "-c", "pass"], check=True, env=environment)
    return (time.perf_counter_ns() - start_ns) / 1e6


def figures(times_ms: list[float]) -> dict[str, float]:
    return {"least": round(min(times_ms), 1), "median": round(statistics.median(times_ms), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--https-client", action="store_true")
    args = parser.parse_args()
    environment = dict(os.environ)
    if args.https_client:
        environment |= {"all_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        start_ms(listener, environment)  # fills the file cache
        whole = [start_ms(listener, environment) for _ in range(args.repeat)]
    python = [python_ms(environment) for _ in range(args.repeat)]
    print(json.dumps({"to_request_ms": figures(whole), "python_ms": figures(python), "repeat": args.repeat}))


if __name__ == "__main__":
    main()
