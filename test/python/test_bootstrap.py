"""A bootstrap, read by Python's parser of e-mail."""

import email
import email.policy
import os
import unittest

import httpx
from daemon import Daemon

daemon: Daemon


def setUpModule() -> None:
    global daemon
    daemon = Daemon()
    unittest.addModuleCleanup(daemon.remove)
    daemon.start()


class Bootstrap(unittest.TestCase):
    def parts(self, answer: httpx.Response) -> list[email.message.Message]:
        """The parts of a whole answer; a defect of its form is an error."""
        self.assertEqual(answer.status_code, 200)
        head = f"Content-Type: {answer.headers['Content-Type']}\r\n\r\n".encode()
        # The policy of HTTP, in which a line may be of any length.
        message = email.message_from_bytes(head + answer.content, policy=email.policy.HTTP.clone(raise_on_defect=True))
        self.assertTrue(message.is_multipart())
        return message.get_payload()

    def test_bytes(self) -> None:
        bucket = f"{daemon.base}/ds/python"
        self.assertEqual(httpx.put(bucket).status_code, 201)
        url = f"{bucket}/bytes"
        octets = {"Content-Type": "application/octet-stream"}
        self.assertEqual(httpx.put(url, headers=octets).status_code, 201)
        first = httpx.get(f"{url}/bootstrap")
        snapshot = self.parts(first)[0]
        self.assertEqual((snapshot["Stream-Snapshot-Offset"], snapshot.get_payload(decode=True)), ("-1", b""))

        name = first.headers["Content-Type"].partition("boundary=")[2].encode()
        payloads = [
            b"--" + name,
            b"\r\n--" + name + b"--\r\n",
            b"\n--\n",
            b"\r\n",
            b"\n",
            b"\0",
            b"ends with a line end\r\n",
            b"\0\r\n\xff\xfe--",
            bytes(range(256)),
            os.urandom(100_000),
        ]
        for payload in payloads:
            httpx.post(url, content=payload, headers=octets).raise_for_status()
        got = self.parts(httpx.get(f"{url}/bootstrap"))[1:]
        self.assertEqual([part.get_payload(decode=True) for part in got], payloads)
        self.assertEqual([int(part["Content-Length"]) for part in got], [len(payload) for payload in payloads])


if __name__ == "__main__":
    unittest.main()
