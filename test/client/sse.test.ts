// The event stream, octet by octet where a client depends on it.
import { stream } from "@durable-streams/client"
import { afterEach, describe, expect, test } from "vitest"
import { daemonForFile } from "./daemon"
import { control, data, kind, parseEvents, RawStream, values } from "./raw"
import { create, del, offset, post } from "./requests"

const daemon = daemonForFile(`--sse-heartbeat=400ms`)

const opened: Array<RawStream> = []
afterEach(() => opened.splice(0).forEach((s) => s.close()))

function follow(url: string, from: string, headers?: Record<string, string>): RawStream {
  const raw = new RawStream(daemon.port, `${new URL(url).pathname}?offset=${from}&live=sse`, headers)
  opened.push(raw)
  return raw
}

describe(`framing`, () => {
  test(`the head comes at once and names what follows`, async () => {
    const url = daemon.fresh()
    await create(url, `text/plain`, `x`)
    const r = await fetch(`${url}?offset=now&live=sse`)
    expect(r.status).toBe(200)
    expect(r.headers.get(`Content-Type`)).toBe(`text/event-stream`)
    expect(r.headers.get(`Cache-Control`)).toBe(`no-cache`)
    expect(r.headers.get(`X-Accel-Buffering`)).toBe(`no`)
    expect(r.headers.get(`Stream-Data-Content-Type`)).toBe(`text/plain`)
    expect(r.headers.get(`Stream-SSE-Data-Encoding`)).toBeNull()
    expect(r.headers.get(`ETag`)).toBeNull()
    await r.body!.cancel()
  })

  test(`at the tail the first event is an up-to-date control`, async () => {
    const url = daemon.fresh()
    await create(url, `text/plain`, `abc`)
    const raw = follow(url, `now`)
    await raw.until(() => raw.events.length > 0)
    expect(raw.body).toMatch(/^event: control\ndata: ?\{[^\n]*\}\nid: ?00000000000000000003\n\n/)
    expect(control(raw.events[0]!)).toMatchObject({ streamNextOffset: offset(3), upToDate: true })
  })

  test(`otherwise nothing precedes the data, whose control reaches the tail and is the only one`, async () => {
    const url = daemon.fresh()
    await create(url, `text/plain`, `abc`)
    const raw = follow(url, `-1`)
    await raw.until(() => raw.events.length > 1)
    expect(raw.events.map(kind)).toEqual([`data`, `control`])
    expect(control(raw.events[1]!)).toMatchObject({ streamNextOffset: offset(3), upToDate: true })
    await raw.until(() => raw.body.includes(`\n:`) || raw.body.startsWith(`:`)) // until the first heartbeat
    expect(raw.events).toHaveLength(2)
  })

  test(`each event is its name, its data and its id, in lines that end in LF alone`, async () => {
    const url = daemon.fresh()
    await create(url, `text/plain`, `one\ntwo`)
    const raw = follow(url, `-1`)
    await raw.until(() => raw.events.length > 1)
    expect(raw.body).not.toContain(`\r`)
    expect(raw.events[0]!.fields).toEqual([
      [`event`, ` data`],
      [`data`, `one`],
      [`data`, `two`],
      [`id`, expect.stringMatching(/^ ?00000000000000000007$/)],
    ])
    expect(raw.events[1]!.fields.map(([name]) => name)).toEqual([`event`, `data`, `id`])
    expect(values(raw.events[1]!, `id`)).toEqual([offset(7)])
  })

  test(`data follows its colon directly, and a leading space is doubled`, async () => {
    const url = daemon.fresh()
    await create(url, `text/plain`, `plain\n spaced\n  twice`)
    const raw = follow(url, `-1`)
    await raw.until(() => raw.events.length > 1)
    expect(raw.events[0]!.fields.filter(([name]) => name === `data`).map(([, v]) => v)).toEqual([`plain`, `  spaced`, `   twice`])
    expect(data(raw.events[0]!)).toBe(`plain\n spaced\n  twice`)
  })

  test(`data and its control leave in one write`, async () => {
    const url = daemon.fresh()
    await create(url)
    const raw = follow(url, `now`)
    await raw.until(() => raw.events.length === 1)
    const before = raw.pieces.length
    await post(url, `something new`)
    await raw.until(() => raw.events.length > 1)
    const piece = raw.pieces.slice(before).find((p) => p.includes(`event: data`))!
    expect(piece).toContain(`event: control`)
    expect(raw.events.map(kind)).toEqual([`control`, `data`, `control`])
  })

  test(`a heartbeat is a comment`, async () => {
    const url = daemon.fresh()
    await create(url)
    const raw = follow(url, `now`)
    await raw.until(() => raw.events.length === 1 && /\n\n:[^\n]*\n/.test(raw.body))
    expect(raw.events).toHaveLength(1)
  })
})

describe(`payloads`, () => {
  test(`no payload forges a field or an event`, async () => {
    const url = daemon.fresh()
    await create(url)
    const evil = `a\r\nevent: control\rdata: {"streamNextOffset":"9","upToDate":true}\n\nid: 99\n: x\r\rb\n`
    await post(url, evil)
    const raw = follow(url, `-1`)
    await raw.until(() => raw.events.length > 1)
    expect(raw.events.map(kind)).toEqual([`data`, `control`])
    expect(data(raw.events[0]!)).toBe(evil.replace(/\r\n?/g, `\n`))
    expect(values(raw.events[0]!, `id`)).toEqual([offset(Buffer.byteLength(evil))])
  })

  test(`the client reads such a payload as text`, async () => {
    const url = daemon.fresh()
    const evil = `one\r\ndata: two\n\nevent: control\n\n three`
    await create(url)
    const res = await stream({ url, live: `sse` })
    const got = new Promise<string>((done) => {
      res.subscribeText((chunk) => {
        if (chunk.text) done(chunk.text)
      })
    })
    await post(url, evil)
    expect(await got).toBe(evil.replace(/\r\n?/g, `\n`))
    res.cancel()
  })

  test(`a character that is cut by an append waits for its rest`, async () => {
    const url = daemon.fresh()
    const euro = Buffer.from(`€`, `utf8`)
    await create(url, `text/plain`, `a`)
    await post(url, euro.subarray(0, 2))
    const raw = follow(url, `-1`)
    await raw.until(() => raw.events.length > 1)
    expect(data(raw.events[0]!)).toBe(`a`)
    expect(control(raw.events[1]!)).toMatchObject({ streamNextOffset: offset(1) })
    expect(control(raw.events[1]!)).not.toHaveProperty(`upToDate`)
    await post(url, euro.subarray(2))
    await raw.until(() => raw.events.length > 3)
    expect(data(raw.events[2]!)).toBe(`€`)
    expect(control(raw.events[3]!)).toMatchObject({ streamNextOffset: offset(4), upToDate: true })
  })

  test(`a cut character that stays so goes out as U+FFFD: at once when the stream closes, else after 5 s`, { timeout: 20_000 }, async () => {
    const cut = Buffer.from(`€`, `utf8`).subarray(0, 2)
    const [closing, waiting] = [daemon.fresh(), daemon.fresh()]
    for (const url of [closing, waiting]) {
      await create(url, `text/plain`, `a`)
      await post(url, cut)
    }
    const [first, second] = [follow(closing, `-1`), follow(waiting, `-1`)]
    await first.until(() => first.events.length > 1)
    await post(closing, undefined, undefined, { "Stream-Closed": `true` })
    await first.until(() => first.complete)
    await second.until(() => second.events.length > 3)
    for (const raw of [first, second]) {
      expect(raw.events.map(kind)).toEqual([`data`, `control`, `data`, `control`])
      expect(data(raw.events[2]!)).toMatch(/^\ufffd+$/)
      expect(control(raw.events[3]!)).toMatchObject({ streamNextOffset: offset(3), upToDate: true })
    }
  })

  test(`JSON events are arrays of whole messages`, async () => {
    const url = daemon.fresh()
    await create(url, `application/json`, `[1, {"a": "x\\ny"}]`)
    const raw = follow(url, `-1`)
    await raw.until(() => raw.events.length > 1)
    expect(JSON.parse(data(raw.events[0]!))).toEqual([1, { a: `x\ny` }])
    await post(url, `[[3], null]`, `application/json`)
    await raw.until(() => raw.events.length > 3)
    expect(JSON.parse(data(raw.events[2]!))).toEqual([[3], null])
  })

  test(`bytes are base64, and the head says so`, async () => {
    const url = daemon.fresh()
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
    await create(url, `application/octet-stream`, bytes)
    const raw = follow(url, `-1`)
    await raw.until(() => raw.events.length > 1)
    expect(raw.head.toLowerCase()).toContain(`stream-sse-data-encoding: base64`)
    expect(raw.head.toLowerCase()).toContain(`stream-data-content-type: application/octet-stream`)
    expect(Buffer.from(data(raw.events[0]!), `base64`).equals(bytes)).toBe(true)
  })

  test(`a connection cut anywhere resumes exactly at its last whole control`, async () => {
    const url = daemon.fresh()
    await create(url)
    const raw = follow(url, `-1`)
    const parts = [`first\n`, ` second`, `dritt: ü€𝄞`, `\r\nlast`]
    for (const [i, part] of parts.entries()) {
      await post(url, part)
      await raw.until(() => raw.events.filter((e) => kind(e) === `data`).length > i)
    }
    const recorded = Buffer.from(raw.body, `utf8`)
    const whole = parts.join(``)
    const rests = new Map<string, string>() // what a resumed read gives, by offset
    for (let cut = 0; cut <= recorded.length; cut++) {
      let kept = ``
      let pending = ``
      let at = `-1`
      for (const event of parseEvents(recorded.subarray(0, cut).toString(`utf8`))) {
        if (kind(event) === `data`) pending += data(event)
        else if (kind(event) === `control`) {
          kept += pending
          pending = ``
          at = control(event).streamNextOffset as string
        }
      }
      if (!rests.has(at)) rests.set(at, await (await fetch(`${url}?offset=${at}`)).text())
      expect(kept + rests.get(at)!.replace(/\r\n?/g, `\n`), `cut at ${cut}`).toBe(whole.replace(/\r\n?/g, `\n`))
    }
  })
})

describe(`ends`, () => {
  test(`closing: the last control says so, has no cursor, and the response ends`, async () => {
    const url = daemon.fresh()
    await create(url)
    const raw = follow(url, `now`)
    await raw.until(() => raw.events.length === 1)
    await post(url, `bye`, undefined, { "Stream-Closed": `true` })
    await raw.until(() => raw.complete)
    expect(raw.events.map(kind)).toEqual([`control`, `data`, `control`])
    const last = control(raw.events[2]!)
    expect(last).toMatchObject({ streamNextOffset: offset(3), streamClosed: true, upToDate: true })
    expect(last).not.toHaveProperty(`streamCursor`)
    expect(control(raw.events[0]!)).toHaveProperty(`streamCursor`)
  })

  test(`a closed stream is told to whoever comes later`, async () => {
    const url = daemon.fresh()
    await create(url, `text/plain`, `abc`)
    await post(url, undefined, undefined, { "Stream-Closed": `true` })
    const raw = follow(url, offset(3))
    await raw.until(() => raw.complete)
    expect(raw.events.map(kind)).toEqual([`control`])
    expect(control(raw.events[0]!)).toMatchObject({ streamClosed: true, upToDate: true })
  })

  test(`deletion: an end event with the problem`, async () => {
    const url = daemon.fresh()
    await create(url)
    const raw = follow(url, `now`)
    await raw.until(() => raw.events.length === 1)
    expect((await del(url)).status).toBe(204)
    await raw.until(() => raw.complete)
    const last = raw.events.at(-1)!
    expect(kind(last)).toBe(`end`)
    expect(JSON.parse(data(last))).toMatchObject({ status: 404, code: expect.any(String) })
  })

  test(`deletion: the client passes over the end event, and learns of it by asking again`, async () => {
    const url = daemon.fresh()
    await create(url, `application/json`, `[1]`)
    const asked: Array<number> = []
    const res = await stream<number>({
      url,
      live: `sse`,
      fetch: async (...args: Parameters<typeof fetch>) => {
        const answer = await fetch(...args)
        asked.push(answer.status)
        return answer
      },
    })
    const seen: Array<number> = []
    res.subscribeJson(async (batch) => {
      seen.push(...batch.items)
      if (batch.items.includes(1)) await post(url, `[2,3]`, `application/json`)
      if (batch.items.includes(3)) await del(url)
    })
    await expect(res.closed).rejects.toMatchObject({ name: `FetchError`, status: 404 })
    expect(seen).toEqual([1, 2, 3])
    expect(res.offset).toBe(offset(6))
    expect(asked).toEqual([200, 200, 404]) // the past, the events, and what came of them
  })
})

describe(`Last-Event-ID`, () => {
  test(`wins over the offset of the address`, async () => {
    const url = daemon.fresh()
    await create(url, `text/plain`, `abcdef`)
    const raw = follow(url, `now`, { "Last-Event-ID": offset(4) })
    await raw.until(() => raw.events.length > 1)
    expect(data(raw.events[0]!)).toBe(`ef`)
  })

  test(`that is malformed or beyond the tail is 400`, async () => {
    const url = daemon.fresh()
    await create(url)
    for (const id of [`x`, offset(1)]) {
      const r = await fetch(`${url}?offset=now&live=sse`, { headers: { "Last-Event-ID": id } })
      expect(r.status).toBe(400)
      await r.text()
    }
  })
})
