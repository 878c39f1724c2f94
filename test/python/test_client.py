"""The official Python client against the binary, as test/e2e runs it."""

import asyncio
import hashlib
import json
import signal
import threading
import unittest
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
from daemon import Daemon

from durable_streams import (
    AsyncDurableStream,
    DurableStream,
    DurableStreamError,
    RetentionGoneError,
    SeqConflictError,
    StreamExistsError,
    StreamNotFoundError,
    astream,
    stream,
)

PLAIN, JSON, BYTES = "text/plain", "application/json", "application/octet-stream"


def offset(n: int) -> str:
    """An offset as the server writes it."""
    return f"{n:020d}"


daemon: Daemon


def setUpModule() -> None:
    global daemon
    # A small log, so that it starts quickly.
    small = ("--wal-file-bytes=1MiB", "--max-body-bytes=512KiB", "--min-free-disk=16MiB")
    daemon = Daemon("--long-poll-timeout=500ms", "--sse-max-duration=2s", "--sse-heartbeat=500ms", *small)
    unittest.addModuleCleanup(daemon.remove)
    daemon.start()


class Streams(unittest.TestCase):
    def test_text(self) -> None:
        url = daemon.fresh()
        with DurableStream.create(url, content_type=PLAIN, body="first, ") as handle:
            self.assertEqual(handle.append("zweitens: ü€𝄞").next_offset, offset(7 + 19))
            with handle.stream(live=False) as answer:
                self.assertEqual(answer.read_text(), "first, zweitens: ü€𝄞")
                self.assertEqual(answer.offset, offset(26))
                self.assertTrue(answer.up_to_date)
                self.assertEqual(answer.content_type, PLAIN)

    def test_bytes(self) -> None:
        sent = bytes(i * 7 % 256 for i in range(100_000))
        with DurableStream.create(daemon.fresh(), content_type=BYTES) as handle:
            handle.append(sent[:10])
            handle.append(sent[10:])
            with handle.stream(live=False) as answer:
                self.assertEqual(b"".join(answer), sent)

    def test_metadata(self) -> None:
        url = daemon.fresh()
        with self.assertRaises(StreamNotFoundError):
            DurableStream.connect(url)
        with DurableStream.create(url, content_type=PLAIN, body="12345", ttl_seconds=3600):
            pass
        with DurableStream.connect(url) as handle:
            self.assertEqual(handle.content_type, PLAIN)
            found = handle.head()
            self.assertEqual(found.offset, offset(5))
            self.assertTrue(found.etag)
            handle.delete()
        with self.assertRaises(StreamNotFoundError):
            DurableStream.head_static(url)

    def test_errors(self) -> None:
        url = daemon.fresh()
        with self.assertRaises(StreamNotFoundError):
            stream(url, live=False)
        with DurableStream.create(url, content_type=PLAIN) as handle:
            with self.assertRaises(StreamExistsError):
                DurableStream.create(url, content_type=JSON)
            with self.assertRaises(DurableStreamError) as refused:
                handle.stream(live=False, offset="nonsense")
            self.assertEqual(refused.exception.status, 400)
            handle.append("a", seq="2")
            with self.assertRaises(SeqConflictError):
                handle.append("b", seq="1")
            with handle.stream(live=False) as answer:
                self.assertEqual(answer.read_text(), "a")

    def test_trimmed(self) -> None:
        """A reader that comes too late is told that its past is gone, and begins anew."""
        bucket = f"{daemon.base}/ds/trimmed"
        self.assertEqual(httpx.put(bucket).status_code, 201)
        with DurableStream.create(f"{bucket}/s", content_type=JSON) as handle:
            handle.append({"n": 1})
            end = handle.append({"n": 2}).next_offset
            handle.append({"n": 3})
            httpx.put(f"{handle.url}/snapshot/{end}", content=b'{"sum":3}', headers={"Content-Type": JSON}).raise_for_status()
            with self.assertRaises(RetentionGoneError):
                handle.stream(live=False)
            snapshot = httpx.get(f"{handle.url}/snapshot", follow_redirects=True)
            self.assertEqual(snapshot.headers["Stream-Snapshot-Digest"], hashlib.sha256(snapshot.content).hexdigest())
            with handle.stream(live=False, offset=snapshot.headers["Stream-Snapshot-Offset"]) as answer:
                self.assertEqual(answer.read_json(), [{"n": 3}])


class Writing(unittest.TestCase):
    def test_batches(self) -> None:
        """Appends that meet become one request, and one message each."""
        requests: list[int] = []

        def count(request: httpx.Request) -> None:
            if request.method == "POST":
                requests.append(len(json.loads(request.content)))

        with httpx.Client(event_hooks={"request": [count]}) as client:
            handle = DurableStream.create(daemon.fresh(), content_type=JSON, client=client)

            def write(writer: int) -> None:
                for n in range(50):
                    handle.append({"writer": writer, "n": [n, None, "é\n"]})

            with ThreadPoolExecutor(16) as pool:
                list(pool.map(write, range(16)))
            items = handle.stream(live=False).read_json()
        self.assertEqual(len(items), 800)
        self.assertEqual(sum(requests), 800)
        self.assertLess(len(requests), 800)
        for writer in range(16):
            mine = [item["n"] for item in items if item["writer"] == writer]
            self.assertEqual(mine, [[n, None, "é\n"] for n in range(50)])

    def test_an_array_is_one_message(self) -> None:
        with DurableStream.create(daemon.fresh(), content_type=JSON, batching=False) as handle:
            for value in ([1, 2], [], None, {"deep": [[3]]}):
                handle.append(value)
            self.assertEqual(handle.stream(live=False).read_json(), [[1, 2], [], None, {"deep": [[3]]}])

    def test_idempotent(self) -> None:
        """The client has no producer of its own, but it sends the headers that it is given."""
        seq = 0
        headers = {"Producer-Id": "python", "Producer-Epoch": "0", "Producer-Seq": lambda: str(seq)}
        with DurableStream.create(daemon.fresh(), content_type=PLAIN) as plain:
            with DurableStream(plain.url, content_type=PLAIN, headers=headers) as producer:
                for seq in range(5):
                    first = producer.append(f"{seq},")
                    repeat = producer.append(f"{seq},")
                    self.assertEqual(repeat.next_offset, first.next_offset)
                seq = 7
                with self.assertRaises(SeqConflictError):
                    producer.append("a gap")
            self.assertEqual(plain.stream(live=False).read_text(), "0,1,2,3,4,")


class Following(unittest.TestCase):
    def check_follow(self, live: str, content_type: str, mode: str, encode: Callable[[int], object], decode: Callable[[object], list[int]]) -> None:
        """Each message is appended only once the one before it has come back."""
        with DurableStream.create(daemon.fresh(), content_type=content_type) as handle:
            handle.append(encode(0))
            seen: list[int] = []
            with handle.stream(live=live, offset="-1") as answer:
                for event in answer.iter_events(mode=mode):
                    seen += decode(event.data)
                    if seen[-1] == 20:
                        break
                    self.assertEqual(event.next_offset, handle.head().offset)
                    handle.append(encode(seen[-1] + 1))
            self.assertEqual(seen, list(range(21)))

    def test_json(self) -> None:
        for live in ("long-poll", "sse"):
            with self.subTest(live):
                self.check_follow(live, JSON, "json", lambda n: {"n": n}, lambda data: [item["n"] for item in data])

    def test_text(self) -> None:
        for live in ("long-poll", "sse"):
            with self.subTest(live):
                self.check_follow(live, PLAIN, "text", lambda n: f"{n};", lambda data: [int(n) for n in data.split(";")[:-1]])

    def test_bytes(self) -> None:
        self.check_follow("long-poll", BYTES, "bytes", lambda n: bytes([n, 0, 255]), lambda data: list(data[::3]))

    def test_waiting_is_renewed(self) -> None:
        """A long-poll that ends with nothing is followed by another."""
        waits = 0
        woken = threading.Event()

        def note(answer: httpx.Response) -> None:
            nonlocal waits
            if answer.status_code == 204:
                waits += 1
                if waits == 2:
                    woken.set()

        with DurableStream.create(daemon.fresh(), content_type=PLAIN) as handle:
            with httpx.Client(event_hooks={"response": [note]}) as client, ThreadPoolExecutor(1) as pool:
                appended = pool.submit(lambda: woken.wait(30) and handle.append("at last"))
                with stream(handle.url, live="long-poll", offset="-1", client=client) as answer:
                    self.assertEqual(next(answer.iter_text()), "at last")
                appended.result()
        self.assertGreaterEqual(waits, 2)

    def test_end(self) -> None:
        """The event that says why a live read ends is not taken for data."""
        with DurableStream.create(daemon.fresh(), content_type=JSON) as handle:
            handle.append({"n": 1})
            items = []
            with stream(handle.url, live="sse", offset="-1") as answer:
                for item in answer.iter_json():
                    items.append(item)
                    handle.delete()
                self.assertEqual(items, [{"n": 1}])

    def test_async(self) -> None:
        async def follow() -> list[int]:
            handle = await AsyncDurableStream.create(daemon.fresh(), content_type=JSON)
            await asyncio.gather(*(handle.append({"n": n}) for n in range(30)))
            seen: list[int] = []
            async with astream(handle.url, live="sse", offset="-1") as answer:
                async for item in answer.iter_json():
                    seen.append(item["n"])
                    if len(seen) == 30:
                        await handle.append({"n": 30})
                    if len(seen) == 31:
                        break
            await handle.aclose()
            return seen

        self.assertEqual(asyncio.run(follow()), list(range(31)))


class Restarts(unittest.TestCase):
    def test_resume(self) -> None:
        """A reader that keeps its offset misses nothing and gets nothing twice, whatever happens to
        the server or to its connection."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            for live in ("long-poll", "sse"):
                with self.subTest(how=how.name, live=live):
                    self.check_resume(how, live)

    def check_resume(self, how: signal.Signals, live: str) -> None:
        with DurableStream.create(daemon.fresh(), content_type=JSON) as handle:
            seen: list[int] = []
            at = "-1"

            def events() -> Iterator[list[int]]:
                nonlocal at
                while True:
                    try:
                        with stream(handle.url, live=live, offset=at) as answer:
                            for event in answer.iter_events():
                                at = event.next_offset
                                yield [item["n"] for item in event.data]
                    except (httpx.TransportError, DurableStreamError):
                        pass  # the server is down, or going

            handle.append({"n": 0})
            for items in events():
                seen += items
                if seen[-1] == 6:
                    break
                if seen[-1] == 3:
                    daemon.restart(how)
                handle.append({"n": seen[-1] + 1})
            self.assertEqual(seen, list(range(7)))
            self.assertEqual(handle.stream(live=False).read_json(), [{"n": n} for n in range(7)])
            self.assertEqual(handle.head().offset, at)


if __name__ == "__main__":
    unittest.main()
