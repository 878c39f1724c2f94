// Every message of a bootstrap is a part of its own, octet for octet what was written.
import { randomBytes } from "node:crypto"
import { describe, expect, test } from "vitest"
import { daemonForFile } from "../client/daemon"
import { create, expectHeaders, offset, post, put } from "../client/requests"
import { boundaryOf, parsers, type Part } from "./multipart"

const daemon = daemonForFile()

let buckets = 0
/** The URL of a stream in a bucket of its own. */
async function fresh(): Promise<string> {
  const bucket = `http://127.0.0.1:${daemon.port}/ds/bucket-${++buckets}`
  expect((await put(bucket)).status).toBe(201)
  return `${bucket}/stream`
}

interface Bootstrap {
  answer: Response
  boundary: string
  body: Uint8Array
}

async function bootstrap(url: string): Promise<Bootstrap> {
  const answer = await fetch(`${url}/bootstrap`)
  expect(answer.status).toBe(200)
  return { answer, boundary: boundaryOf(answer), body: new Uint8Array(await answer.arrayBuffer()) }
}

/** Compares parts with what they must say; the first is the snapshot. */
function expectParts(parts: Array<Part>, want: Array<{ type: string; body: string | Uint8Array; snapshot?: string }>): void {
  expect(parts).toHaveLength(want.length)
  for (const [i, { type, body, snapshot }] of want.entries()) {
    const { headers, body: got } = parts[i]!
    const bytes = Buffer.from(body as Uint8Array)
    expect(Buffer.compare(got, bytes), `part ${i}: ${got.length} octets for ${bytes.length}`).toBe(0)
    expect(headers[`content-type`]).toBe(type)
    expect(headers[`content-length`]).toBe(String(bytes.length))
    expect(headers[`stream-snapshot-offset`]).toBe(snapshot)
  }
}

/** What other boundaries, and careless ways to find one, stumble over. */
function lookalikes(boundary: string): Array<Buffer> {
  const texts = [
    `--${boundary}`,
    `\r\n--${boundary}\r\n`,
    `\r\n--${boundary}--\r\n`,
    `--${boundary}--`,
    `\r\n--${boundary.slice(0, -1)}`,
    `\n--${boundary}\n`,
    `\r\n--\r\n`,
    `--`,
    `-`,
    `-`.repeat(5000),
    `\r\n`,
    `\r`,
    `\n`,
    `\r\n\r\n`,
    `ends with CR\r`,
    `ends with CR LF\r\n`,
    `\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n`,
    `\0`,
    `\0\r\n\0--\0`,
  ]
  const every = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
  const noise = randomBytes(1 << 20)
  for (let at = 0; at < noise.length - 100; at += 4093) noise.write(`\r\n--${boundary}`, at, `latin1`)
  return [...texts.map((text) => Buffer.from(text, `latin1`)), every, noise]
}

describe.each(Object.entries(parsers))(`%s`, (_, parse) => {
  const octets = `application/octet-stream`

  test(`an empty stream: the empty part of a snapshot that there is not`, async () => {
    const url = await fresh()
    await create(url, `text/plain`)
    const { answer, boundary, body } = await bootstrap(url)
    expectHeaders(answer, {
      "Stream-Snapshot-Offset": `-1`,
      "Stream-Next-Offset": offset(0),
      "Stream-Up-To-Date": `true`,
      "Stream-Closed": null,
      "Cache-Control": `no-store`,
    })
    expectParts(await parse(body, boundary), [{ type: octets, body: ``, snapshot: `-1` }])
  })

  test(`bytes`, async () => {
    const url = await fresh()
    await create(url, octets)
    const first = await bootstrap(url)
    const payloads = lookalikes(first.boundary)
    for (const payload of payloads) expect((await post(url, payload, octets)).status).toBe(204)

    const whole = await bootstrap(url)
    expect(whole.boundary).not.toBe(first.boundary)
    expectParts(await parse(whole.body, whole.boundary), [
      { type: octets, body: ``, snapshot: `-1` },
      ...payloads.map((body) => ({ type: octets, body })),
    ])

    // A snapshot of the same kind takes the place of the first half.
    const half = payloads.slice(0, 10)
    const at = offset(Buffer.concat(half).length)
    const snapshot = Buffer.concat([Buffer.from(`\r\n--${whole.boundary}--\r\n`), payloads.at(-1)!])
    expect((await put(`${url}/snapshot/${at}`, { type: `image/png`, body: snapshot })).status).toBe(204)
    const rest = await bootstrap(url)
    expectHeaders(rest.answer, {
      "Stream-Snapshot-Offset": at,
      "Stream-Next-Offset": offset(Buffer.concat(payloads).length),
      "Stream-Up-To-Date": `true`,
    })
    expectParts(await parse(rest.body, rest.boundary), [
      { type: `image/png`, body: snapshot, snapshot: at },
      ...payloads.slice(10).map((body) => ({ type: octets, body })),
    ])
  })

  test(`JSON: each part is one bare value`, async () => {
    const url = await fresh()
    const json = `application/json`
    await create(url, json, `[{"n": 1.50, "n": "\\u00e9"}, [ ], null]`)
    await post(url, `"\\r\\n--"`, json)
    await post(url, `[[1,2],"ü"]`, json)
    const values = [`{"n":1.50,"n":"\\u00e9"}`, `[]`, `null`, `"\\r\\n--"`, `[1,2]`, `"ü"`]
    const whole = await bootstrap(url)
    expectParts(await parse(whole.body, whole.boundary), [
      { type: octets, body: ``, snapshot: `-1` },
      ...values.map((body) => ({ type: json, body })),
    ])

    const published = await put(`${url}/snapshot?record=3`, { type: json, body: `{"a": 1}\r\n` })
    expect(published.status).toBe(204)
    await post(url, undefined, undefined, { "Stream-Closed": `true` })
    const rest = await bootstrap(url)
    expectHeaders(rest.answer, { "Stream-Closed": `true`, "Stream-Up-To-Date": `true` })
    expectParts(await parse(rest.body, rest.boundary), [
      { type: json, body: `{"a": 1}\r\n`, snapshot: published.headers.get(`Stream-Snapshot-Offset`)! },
      ...values.slice(3).map((body) => ({ type: json, body })),
    ])
  })

  test(`an empty snapshot is not the lack of one`, async () => {
    const url = await fresh()
    await create(url, `text/plain`, `abc`)
    expect((await put(`${url}/snapshot/3`, { type: `text/plain` })).status).toBe(204)
    await post(url, `def`)
    const { boundary, body } = await bootstrap(url)
    expectParts(await parse(body, boundary), [
      { type: `text/plain`, body: ``, snapshot: offset(3) },
      { type: `text/plain`, body: `def` },
    ])
  })

  test(`a body that was cut short is not taken for a whole one`, async () => {
    const url = await fresh()
    await create(url, octets, `x`)
    await post(url, randomBytes(10_000), octets)
    const { boundary, body } = await bootstrap(url)
    const end = `\r\n--${boundary}--\r\n`.length
    for (const cut of [end, end + 1, end + 5000]) {
      await expect(parse(body.subarray(0, body.length - cut), boundary), `${cut} octets less`).rejects.toThrow()
    }
  })
})
