// The official client's main uses.
import { DurableStream, FetchError, IdempotentProducer, stream } from "@durable-streams/client"
import { describe, expect, test } from "vitest"
import { daemonForFile } from "./daemon"

const daemon = daemonForFile(`--long-poll-timeout=1s`)

/** What a callback calls done with. */
const collect = <T>(add: (done: (result: T) => void) => void): Promise<T> => new Promise<T>(add)

describe(`streams`, () => {
  test(`create, append and read text`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `text/plain` })
    await handle.append(`hello `)
    await handle.append(`world`)
    const res = await stream({ url, live: false })
    expect(await res.text()).toBe(`hello world`)
    expect(res.contentType).toBe(`text/plain`)
    expect(res.upToDate).toBe(true)
  })

  test(`bytes come back as they went in`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `application/octet-stream` })
    const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => (i * 7) % 256)
    await handle.append(bytes.subarray(0, 10))
    await handle.append(bytes.subarray(10))
    expect(Buffer.compare(await (await stream({ url, live: false })).body(), bytes)).toBe(0)
  })

  test(`create twice is one stream, with another type an error`, async () => {
    const url = daemon.fresh()
    await DurableStream.create({ url, contentType: `text/plain`, body: `once` })
    await DurableStream.create({ url, contentType: `text/plain`, body: `once` })
    await expect(DurableStream.create({ url, contentType: `application/json` })).rejects.toMatchObject({ status: 409 })
    expect(await (await stream({ url, live: false })).text()).toBe(`once`)
  })

  test(`head, connect and delete`, async () => {
    const url = daemon.fresh()
    expect(await DurableStream.head({ url })).toEqual({ exists: false })
    const handle = await DurableStream.create({ url, contentType: `text/plain`, body: `12345` })
    const found = await DurableStream.head({ url })
    expect(found).toMatchObject({ exists: true, contentType: `text/plain`, offset: `00000000000000000005`, streamClosed: false })
    expect(found.etag).toBeTruthy()
    expect((await DurableStream.connect({ url })).contentType).toBe(`text/plain`)
    await handle.delete()
    expect(await DurableStream.head({ url })).toEqual({ exists: false })
    await expect(stream({ url, live: false })).rejects.toMatchObject({ status: 404 })
  })

  test(`close with a last message, and what follows is refused`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `text/plain`, body: `a` })
    const { finalOffset } = await handle.close({ body: `b` })
    expect(finalOffset).toBe(`00000000000000000002`)
    expect((await handle.close()).finalOffset).toBe(finalOffset)
    for (const late of [handle.close({ body: `c` }), handle.append(`c`)]) {
      await expect(late).rejects.toMatchObject({
        status: 409,
        headers: { "stream-closed": `true`, "stream-next-offset": finalOffset },
      })
    }
    const res = await stream({ url })
    expect(await res.text()).toBe(`ab`)
    expect(res.streamClosed).toBe(true)
  })

  test(`appendStream sends a chunked body`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `text/plain` })
    async function* parts() {
      for (let i = 0; i < 50; i++) yield `part ${i};`
    }
    await handle.appendStream(parts())
    const text = await (await stream({ url, live: false })).text()
    expect(text).toBe(Array.from({ length: 50 }, (_, i) => `part ${i};`).join(``))
  })

  test(`a fork has its source's past and a future of its own`, async () => {
    const source = daemon.fresh()
    const handle = await DurableStream.create({ url: source, contentType: `text/plain`, body: `past ` })
    const fork = daemon.fresh()
    const forked = await DurableStream.create({
      url: fork,
      headers: { "Stream-Forked-From": new URL(source).pathname },
    })
    expect(forked.contentType).toBe(`text/plain`)
    await handle.append(`of the source`)
    await new DurableStream({ url: fork, contentType: `text/plain` }).append(`of the fork`)
    expect(await (await stream({ url: fork, live: false })).text()).toBe(`past of the fork`)
    expect(await (await stream({ url: source, live: false })).text()).toBe(`past of the source`)
  })
})

describe(`JSON`, () => {
  test(`overlapping appends go in batches and come back one by one`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `application/json` })
    const items = Array.from({ length: 200 }, (_, n) => ({ n, text: `é "${n}"` }))
    await Promise.all(items.map((item) => handle.append(JSON.stringify(item))))
    expect(await (await stream({ url, live: false })).json()).toEqual(items)
  })

  test(`an array is one message when the client wraps it`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `application/json` })
    await handle.append(`[1,2]`)
    await handle.append(`null`)
    await handle.append(`[]`)
    expect(await (await stream({ url, live: false })).json()).toEqual([[1, 2], null, []])
  })

  test(`a body that is not JSON is refused and stores nothing`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `application/json` })
    await expect(handle.append(`{"open":`)).rejects.toMatchObject({ status: 400 })
    expect(await (await stream({ url, live: false })).json()).toEqual([])
  })
})

describe(`following`, () => {
  for (const live of [`long-poll`, `sse`] as const) {
    test(`${live}: JSON, from the past into the present`, async () => {
      const url = daemon.fresh()
      const handle = await DurableStream.create({ url, contentType: `application/json`, body: [{ n: 0 }] })
      const res = await stream<{ n: number }>({ url, live })
      const seen: Array<number> = []
      const all = collect<void>((done) => {
        res.subscribeJson(async (batch) => {
          for (const item of batch.items) {
            seen.push(item.n)
            if (item.n === 20) done()
            else await handle.append(JSON.stringify({ n: item.n + 1 }))
          }
        })
      })
      await all
      res.cancel()
      expect(seen).toEqual(Array.from({ length: 21 }, (_, n) => n))
      expect(res.offset).toBe((await DurableStream.head({ url })).offset)
    })

    test(`${live}: bytes`, async () => {
      const url = daemon.fresh()
      const handle = await DurableStream.create({ url, contentType: `application/octet-stream` })
      const res = await stream({ url, live })
      const want = Uint8Array.from({ length: 3000 }, (_, i) => 255 - (i % 256))
      const got: Array<number> = []
      const all = collect<void>((done) => {
        res.subscribeBytes((chunk) => {
          got.push(...chunk.data)
          if (got.length === want.length) done()
        })
      })
      for (let i = 0; i < want.length; i += 1000) await handle.append(want.subarray(i, i + 1000))
      await all
      res.cancel()
      expect(Buffer.compare(Uint8Array.from(got), want)).toBe(0)
    })

    test(`${live}: ends when the stream is closed`, async () => {
      const url = daemon.fresh()
      const handle = await DurableStream.create({ url, contentType: `text/plain`, body: `first, ` })
      const res = await stream({ url, live })
      let text = ``
      const end = collect<void>((done) => {
        res.subscribeText((chunk) => {
          text += chunk.text
          if (chunk.streamClosed) done()
        })
      })
      await handle.append(`second, `)
      await handle.close({ body: `last` })
      await end
      await res.closed
      expect(text).toBe(`first, second, last`)
      expect(res.streamClosed).toBe(true)
    })
  }

  test(`long-poll: an empty wait is renewed`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `text/plain` })
    let requests = 0
    const res = await stream({
      url,
      live: `long-poll`,
      fetch: (...args: Parameters<typeof fetch>) => {
        requests++
        return fetch(...args)
      },
    })
    const first = collect<string>((done) => {
      res.subscribeText((chunk) => {
        if (chunk.text) done(chunk.text)
      })
    })
    while (requests < 4) await new Promise((again) => setTimeout(again, 20)) // two waits of 1 s in vain
    await handle.append(`at last`)
    expect(await first).toBe(`at last`)
    res.cancel()
  })
})

describe(`idempotent producer`, () => {
  test(`batches arrive once and in order`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `text/plain` })
    const producer = new IdempotentProducer(handle, `p`, { maxBatchBytes: 100, lingerMs: 1 })
    for (let i = 0; i < 1000; i++) producer.append(`${i},`)
    const { finalOffset } = await producer.close(`end`)
    const text = await (await stream({ url, live: false })).text()
    expect(text).toBe(Array.from({ length: 1000 }, (_, i) => `${i},`).join(``) + `end`)
    expect(Number(finalOffset)).toBe(text.length)
    expect(producer.lastSuccessfulOffset).toBe(finalOffset)
  })

  test(`a lost answer is retried without a duplicate`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `application/json` })
    const statuses: Array<number> = []
    // Every request is sent twice, as if its first answer had got lost.
    const twice = async (...args: Parameters<typeof fetch>): Promise<Response> => {
      statuses.push((await fetch(...args)).status)
      const second = await fetch(...args)
      statuses.push(second.status)
      return second
    }
    const producer = new IdempotentProducer(handle, `p`, { fetch: twice, maxInFlight: 1, maxBatchBytes: 40 })
    for (let n = 0; n < 30; n++) producer.append(JSON.stringify({ n }))
    await producer.flush()
    expect(await (await stream({ url, live: false })).json()).toEqual(Array.from({ length: 30 }, (_, n) => ({ n })))
    expect(new Set(statuses.filter((_, i) => i % 2 === 0))).toEqual(new Set([200]))
    expect(new Set(statuses.filter((_, i) => i % 2 === 1))).toEqual(new Set([204]))
  })

  test(`five batches in flight over a network that reorders them`, { timeout: 60_000 }, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `text/plain` })
    let gaps = 0
    const slow = async (...args: Parameters<typeof fetch>): Promise<Response> => {
      await new Promise((go) => setTimeout(go, Math.random() * 10))
      const response = await fetch(...args)
      if (response.status === 409) gaps++
      return response
    }
    const producer = new IdempotentProducer(handle, `p`, { fetch: slow, maxInFlight: 5, maxBatchBytes: 500, lingerMs: 1 })
    const lines = Array.from({ length: 20_000 }, (_, i) => `${i};`)
    for (const line of lines) producer.append(line)
    await producer.flush()
    expect(await (await stream({ url, live: false })).text()).toBe(lines.join(``))
    expect(gaps).toBeGreaterThan(0)
  })

  test(`a second writer of the same name takes over, the first is fenced`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `text/plain` })
    const errors: Array<Error> = []
    const first = new IdempotentProducer(handle, `p`, { onError: (err) => errors.push(err) })
    first.append(`first `)
    await first.flush()
    const second = new IdempotentProducer(handle, `p`, { epoch: 1 })
    second.append(`second `)
    await second.flush()
    first.append(`zombie`)
    await first.flush().catch(() => {})
    expect(errors.map((err) => err.name)).toEqual([`StaleEpochError`])
    expect(errors[0]).toMatchObject({ currentEpoch: 1 })
    const third = new IdempotentProducer(handle, `p`, { autoClaim: true }) // begins with epoch 0 and is told 1
    third.append(`third`)
    await third.flush()
    expect(third.epoch).toBe(2)
    expect(await (await stream({ url, live: false })).text()).toBe(`first second third`)
  })

  test(`a closed stream ends the producer instead of keeping it busy`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `text/plain` })
    const errors: Array<Error> = []
    let requests = 0
    const counted = (...args: Parameters<typeof fetch>): Promise<Response> => {
      requests++
      return fetch(...args)
    }
    const producer = new IdempotentProducer(handle, `p`, { fetch: counted, lingerMs: 0, onError: (err) => errors.push(err) })
    for (let i = 0; i < 3; i++) {
      producer.append(`${i}`)
      await producer.flush()
    }
    await handle.close()
    producer.append(`late`)
    await producer.flush().catch(() => {})
    expect(errors.map((err) => err.name)).toEqual([`SequenceGapError`])
    expect(requests).toBe(4)
    expect(await (await stream({ url, live: false })).text()).toBe(`012`)
  })

  test(`closing twice, as a retry does, is one close`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `text/plain` })
    const twice = async (...args: Parameters<typeof fetch>): Promise<Response> => {
      await fetch(...args)
      return fetch(...args)
    }
    const producer = new IdempotentProducer(handle, `p`, { fetch: twice })
    producer.append(`a`)
    const { finalOffset } = await producer.close(`b`)
    expect(finalOffset).toBe(`00000000000000000002`)
    expect(await (await stream({ url, live: false })).text()).toBe(`ab`)
  })

  test(`writable() pipes and closes`, async () => {
    const url = daemon.fresh()
    const handle = await DurableStream.create({ url, contentType: `text/plain` })
    const source = new ReadableStream<string>({
      start(controller) {
        for (let i = 0; i < 100; i++) controller.enqueue(`${i} `)
        controller.close()
      },
    })
    await source.pipeTo(handle.writable())
    const res = await stream({ url })
    expect(await res.text()).toBe(Array.from({ length: 100 }, (_, i) => `${i} `).join(``))
    expect(res.streamClosed).toBe(true)
  })
})

test(`errors are typed`, async () => {
  const url = daemon.fresh()
  await expect(new DurableStream({ url, contentType: `text/plain` }).append(`x`)).rejects.toMatchObject({ status: 404 })
  await DurableStream.create({ url, contentType: `text/plain` })
  await expect(stream({ url, live: false, offset: `nonsense` })).rejects.toMatchObject({ status: 400 })
  const problem = await stream({ url, live: false, offset: `nonsense` }).catch((err: FetchError) => err)
  expect((problem as FetchError).text).toContain(`"code"`)
})
