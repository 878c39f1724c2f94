// With `live: false` the official client makes one GET and takes it for the whole: a read without
// max_bytes must not be paged, however long the stream.
import { DurableStream, stream } from "@durable-streams/client"
import { expect, test } from "vitest"
import { daemonForFile } from "./daemon"

const daemon = daemonForFile()

/** A fetch that counts. */
function counting(): { fetch: typeof fetch; requests: () => number } {
  let n = 0
  return {
    fetch: (...args: Parameters<typeof fetch>) => {
      n++
      return fetch(...args)
    },
    requests: () => n,
  }
}

test(`a long stream of bytes comes whole in one answer`, { timeout: 60_000 }, async () => {
  const url = daemon.fresh()
  const handle = await DurableStream.create({ url, contentType: `application/octet-stream` })
  const part = new Uint8Array(1 << 20)
  const want: Array<Uint8Array> = []
  for (let i = 0; i < 80; i++) {
    // More than max-read-bytes, which bounds a page and not this.
    part.fill(i)
    part[i] = 255
    want.push(part.slice())
    await handle.append(part)
  }
  const counted = counting()
  const res = await stream({ url, live: false, fetch: counted.fetch })
  const got = await res.body()
  expect(got.length).toBe(80 << 20)
  expect(Buffer.compare(got, Buffer.concat(want))).toBe(0)
  expect(counted.requests()).toBe(1)
  expect(res.upToDate).toBe(true)
  expect(res.offset).toBe(String(80 << 20).padStart(20, `0`))
})

test(`a long stream of JSON comes as one array`, { timeout: 60_000 }, async () => {
  const url = daemon.fresh()
  const handle = await DurableStream.create({ url, contentType: `application/json` })
  const items = Array.from({ length: 50_000 }, (_, n) => ({ n, filler: `x`.repeat(n % 60) }))
  for (let i = 0; i < items.length; i += 5000) {
    await Promise.all(items.slice(i, i + 5000).map((item) => handle.append(JSON.stringify(item))))
  }
  const counted = counting()
  const got = await (await stream<{ n: number }>({ url, live: false, fetch: counted.fetch })).json()
  expect(counted.requests()).toBe(1)
  expect(got).toEqual(items)
})

test(`a read from the middle goes to the end`, async () => {
  const url = daemon.fresh()
  const handle = await DurableStream.create({ url, contentType: `text/plain` })
  await handle.append(`0123456789`)
  const middle = (await handle.head()).offset!
  await handle.append(`abcdef`)
  expect(await (await stream({ url, live: false, offset: middle })).text()).toBe(`abcdef`)
  expect(await (await stream({ url, live: false, offset: (await handle.head()).offset! })).text()).toBe(``)
})

test(`an empty stream is an empty answer, and up to date`, async () => {
  for (const [contentType, empty] of [
    [`text/plain`, ``],
    [`application/json`, `[]`],
  ]) {
    const url = daemon.fresh()
    await DurableStream.create({ url, contentType })
    const res = await stream({ url, live: false })
    expect(res.upToDate).toBe(true)
    expect(await res.text()).toBe(empty)
  }
})
