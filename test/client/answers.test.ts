// What clients depend on beyond the suite: each header that one of them reads.
import { describe, expect, test } from "vitest"
import { daemonForFile } from "./daemon"
import { create, del, expectHeaders, head, offset, post, producer, put } from "./requests"

const daemon = daemonForFile()

describe(`appends`, () => {
  test(`a new append is 204 with its receipt`, async () => {
    const url = daemon.fresh()
    await create(url)
    const first = await post(url, `abc`)
    expect(first.status).toBe(204)
    expectHeaders(first, { "Stream-Offset": offset(0), "Stream-Next-Offset": offset(3) })
    const second = await post(url, `de`)
    expect(second.status).toBe(204)
    expectHeaders(second, { "Stream-Offset": offset(3), "Stream-Next-Offset": offset(5) })
  })

  test(`with producer headers a new append is 200, a duplicate 204 with the same receipt`, async () => {
    const url = daemon.fresh()
    await create(url)
    const receipt = { "Stream-Offset": offset(0), "Stream-Next-Offset": offset(3) }
    const first = await post(url, `abc`, undefined, producer(`p`, 0, 0))
    expect(first.status).toBe(200)
    expectHeaders(first, receipt)
    expect((await post(url, `from somebody else`)).status).toBe(204)
    const again = await post(url, `abc`, undefined, producer(`p`, 0, 0))
    expect(again.status).toBe(204)
    expectHeaders(again, { ...receipt, "Producer-Epoch": `0`, "Producer-Seq": `0` })
  })

  test(`an older duplicate names the newest write's end and the highest sequence`, async () => {
    const url = daemon.fresh()
    await create(url)
    for (let seq = 0; seq < 3; seq++) expect((await post(url, `abc`, undefined, producer(`p`, 0, seq))).status).toBe(200)
    const old = await post(url, `abc`, undefined, producer(`p`, 0, 0))
    expect(old.status).toBe(204)
    expectHeaders(old, { "Stream-Offset": null, "Stream-Next-Offset": offset(9), "Producer-Seq": `2` })
  })

  test(`close-only is 204, with producer headers too`, async () => {
    const url = daemon.fresh()
    await create(url)
    expect((await post(url, `x`, undefined, producer(`p`, 0, 0))).status).toBe(200)
    const close = { "Stream-Closed": `true`, ...producer(`p`, 0, 1) }
    const first = await fetch(url, { method: `POST`, headers: close })
    expect(first.status).toBe(204)
    expectHeaders(first, { "Stream-Closed": `true`, "Stream-Next-Offset": offset(1) })
    expect((await fetch(url, { method: `POST`, headers: close })).status).toBe(204)
  })
})

describe(`409 to a producer always says what is expected`, () => {
  const both = (expected: number, received: number) => ({
    "Producer-Expected-Seq": String(expected),
    "Producer-Received-Seq": String(received),
  })

  test(`an unknown producer begins at 0`, async () => {
    const url = daemon.fresh()
    await create(url)
    const r = await post(url, `x`, undefined, producer(`new`, 0, 7))
    expect(r.status).toBe(409)
    expectHeaders(r, both(0, 7))
  })

  test(`a gap`, async () => {
    const url = daemon.fresh()
    await create(url)
    await post(url, `x`, undefined, producer(`p`, 0, 0))
    const r = await post(url, `x`, undefined, producer(`p`, 0, 5))
    expect(r.status).toBe(409)
    expectHeaders(r, both(1, 5))
  })

  test(`a closed stream: both are the request's own, so that no client waits for others`, async () => {
    const url = daemon.fresh()
    await create(url)
    await post(url, `x`, undefined, producer(`p`, 0, 0))
    await post(url, undefined, undefined, { "Stream-Closed": `true` })
    const r = await post(url, `y`, undefined, producer(`p`, 0, 1))
    expect(r.status).toBe(409)
    expectHeaders(r, { ...both(1, 1), "Stream-Closed": `true`, "Stream-Next-Offset": offset(1), "Producer-Epoch": `0`, "Producer-Seq": `0` })
    const stranger = await post(url, `y`, undefined, producer(`q`, 0, 4))
    expect(stranger.status).toBe(409)
    expectHeaders(stranger, { ...both(4, 4), "Stream-Closed": `true` })
  })

  test(`another content type`, async () => {
    const url = daemon.fresh()
    await create(url)
    const r = await post(url, `{}`, `application/json`, producer(`p`, 0, 0))
    expect(r.status).toBe(409)
    expectHeaders(r, both(0, 0))
    expect((await post(url, `text`, undefined, producer(`p`, 0, 0))).status).toBe(200) // the refused try was not stored
  })

  test(`a Stream-Seq that does not increase`, async () => {
    const url = daemon.fresh()
    await create(url)
    await post(url, `x`, undefined, { ...producer(`p`, 0, 0), "Stream-Seq": `b` })
    const r = await post(url, `x`, undefined, { ...producer(`p`, 0, 1), "Stream-Seq": `a` })
    expect(r.status).toBe(409)
    expectHeaders(r, { ...both(1, 1), "Stream-Last-Seq": `b` })
  })
})

test(`a stale epoch is 403 with the current one`, async () => {
  const url = daemon.fresh()
  await create(url)
  await post(url, `x`, undefined, producer(`p`, 4, 0))
  const r = await post(url, `x`, undefined, producer(`p`, 3, 0))
  expect(r.status).toBe(403)
  expectHeaders(r, { "Producer-Epoch": `4` })
})

test(`the first write of a higher epoch tells how far the former writer had come`, async () => {
  const url = daemon.fresh()
  await create(url)
  for (let seq = 0; seq < 3; seq++) await post(url, `x`, undefined, producer(`p`, 0, seq))
  const r = await post(url, `x`, undefined, producer(`p`, 1, 0))
  expect(r.status).toBe(200)
  expectHeaders(r, { "Producer-Closed-Epoch": `0`, "Producer-Closed-Seq": `2` })
})

describe(`content types`, () => {
  test(`PUT and HEAD carry the type, type and subtype in lower case`, async () => {
    const url = daemon.fresh()
    const made = await put(url, { type: `Text/PLAIN; charset=UTF-8` })
    expect(made.status).toBe(201)
    for (const r of [made, await put(url, { type: `text/plain` }), await head(url), await fetch(`${url}?offset=-1`)]) {
      expect(r.ok).toBe(true)
      expect(r.headers.get(`Content-Type`)).toBe(`text/plain; charset=UTF-8`)
    }
  })

  test(`a PUT without one makes application/octet-stream`, async () => {
    const url = daemon.fresh()
    expectHeaders(await put(url), { "Content-Type": `application/octet-stream` })
    expectHeaders(await head(url), { "Content-Type": `application/octet-stream` })
  })

  test(`a fork without one has its source's`, async () => {
    const source = daemon.fresh()
    await create(source, `application/json`, `[1,2]`)
    const fork = await put(daemon.fresh(), { headers: { "Stream-Forked-From": new URL(source).pathname } })
    expect(fork.status).toBe(201)
    expectHeaders(fork, { "Content-Type": `application/json` })
  })
})

describe(`reads`, () => {
  test(`Stream-Closed and Stream-Up-To-Date only when the answer reaches the end`, async () => {
    const url = daemon.fresh()
    await create(url, `text/plain`, `0123456789`)
    await post(url, undefined, undefined, { "Stream-Closed": `true` })
    const first = await fetch(`${url}?offset=-1&max_bytes=4`)
    expect(await first.text()).toBe(`0123`)
    expectHeaders(first, { "Stream-Closed": null, "Stream-Up-To-Date": null, "Stream-Next-Offset": offset(4) })
    const last = await fetch(`${url}?offset=${offset(4)}`)
    expect(await last.text()).toBe(`456789`)
    expectHeaders(last, { "Stream-Closed": `true`, "Stream-Up-To-Date": `true`, "Stream-Next-Offset": offset(10) })
    const tail = await fetch(`${url}?offset=${offset(10)}`)
    expect(await tail.text()).toBe(``)
    expectHeaders(tail, { "Stream-Closed": `true`, "Stream-Up-To-Date": `true` })
  })

  test(`a JSON page holds at least one whole message`, async () => {
    const url = daemon.fresh()
    await create(url, `application/json`, `[{"a":"a long first message"},2,3]`)
    const seen: Array<unknown> = []
    for (let at = `-1`; ; ) {
      const r = await fetch(`${url}?offset=${at}&max_bytes=1`)
      const page = (await r.json()) as Array<unknown>
      if (r.headers.get(`Stream-Up-To-Date`) && page.length === 0) break
      expect(page).toHaveLength(1)
      seen.push(...page)
      at = r.headers.get(`Stream-Next-Offset`)!
      if (r.headers.get(`Stream-Up-To-Date`)) break
    }
    expect(seen).toEqual([{ a: `a long first message` }, 2, 3])
  })

  test(`an open stream is up to date, but not closed, at its tail`, async () => {
    const url = daemon.fresh()
    await create(url, `text/plain`, `x`)
    expectHeaders(await fetch(`${url}?offset=-1`), { "Stream-Closed": null, "Stream-Up-To-Date": `true` })
    expectHeaders(await head(url), { "Stream-Closed": null, "Stream-Next-Offset": offset(1) })
  })
})

test(`every answer about a stream names its incarnation, and another stream has another`, async () => {
  const url = daemon.fresh()
  const made = await put(url, { type: `text/plain` })
  const id = made.headers.get(`Stream-Incarnation`)
  expect(id).toMatch(/^\d+$/)
  for (const r of [await head(url), await post(url, `x`), await fetch(url), await post(url, `{}`, `application/json`)]) {
    expectHeaders(r, { "Stream-Incarnation": id })
  }
  expect((await post(url, `x`, undefined, { "Stream-Incarnation": String(Number(id) + 1) })).status).toBe(412)
  expect((await del(url)).status).toBe(204)
  const other = (await put(url, { type: `text/plain` })).headers.get(`Stream-Incarnation`)
  expect(other).not.toBe(id)
  const stale = await post(url, `x`, undefined, { "Stream-Incarnation": id! })
  expect(stale.status).toBe(412)
  expectHeaders(stale, { "Stream-Incarnation": other })
})

test(`a refusal is problem+json with a code, and readable across origins`, async () => {
  const url = daemon.fresh()
  await create(url)
  const r = await fetch(`${url}?offset=nonsense`, { headers: { Origin: `https://app.example` } })
  expect(r.status).toBe(400)
  expectHeaders(r, {
    "Content-Type": `application/problem+json`,
    "Access-Control-Allow-Origin": `*`,
    "X-Content-Type-Options": `nosniff`,
    "Cross-Origin-Resource-Policy": `cross-origin`,
  })
  expect(await r.json()).toMatchObject({ status: 400, code: expect.any(String), detail: expect.any(String), field: `offset` })
  const exposed = r.headers.get(`Access-Control-Expose-Headers`)!.toLowerCase()
  for (const name of [`stream-next-offset`, `stream-cursor`, `stream-up-to-date`, `stream-closed`, `producer-epoch`, `producer-expected-seq`, `etag`, `location`, `retry-after`]) {
    expect(exposed).toContain(name)
  }
})
