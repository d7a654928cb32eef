"""A real S3 over HTTP: moto's server in a process of its own, and a bucket in it."""

import subprocess
import sys
import urllib.request
from contextlib import contextmanager

PROGRAM = """\
from moto.server import ThreadedMotoServer
import sys, logging
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("http://{}:{}".format(*server.get_host_and_port()), flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_server():
    """Give the address of a server."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.kill()


def s3_environment(address):
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def empty_store(address):
    """Remove everything that a server holds."""
    request = urllib.request.Request(f"{address}/moto-api/reset", method="POST")
    urllib.request.urlopen(request, timeout=30).close()
