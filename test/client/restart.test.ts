// Clients outlive the server: nothing is lost, doubled or reordered for them.
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"
import { describe, expect, test } from "vitest"
import { daemonForFile } from "./daemon"
import { control, kind, RawStream } from "./raw"
import { create, post } from "./requests"

const daemon = daemonForFile(`--sse-max-duration=1s`, `--sse-heartbeat=300ms`, `--long-poll-timeout=1s`)

/** A fetch that tries again until the server answers, as an application would. */
async function persistent(...args: Parameters<typeof fetch>): Promise<Response> {
  for (let tries = 0; ; tries++) {
    try {
      const r = await fetch(...args)
      if (r.status !== 503) return r
    } catch (err) {
      if (tries > 1000 || args[1]?.signal?.aborted) throw err
    }
    await new Promise((again) => setTimeout(again, 20))
  }
}

for (const signal of [`SIGTERM`, `SIGKILL`] as const) {
  describe(signal, () => {
    test(`a reader that kept its offset goes on from there`, { timeout: 60_000 }, async () => {
      const url = daemon.fresh()
      const handle = await DurableStream.create({ url, contentType: `application/json` })
      await handle.append(`{"n":1}`)
      await handle.append(`{"n":2}`)
      const before = await stream<{ n: number }>({ url, live: false })
      expect(await before.json()).toEqual([{ n: 1 }, { n: 2 }])
      await daemon.restart(signal)
      await handle.append(`{"n":3}`)
      expect(await (await stream({ url, live: false, offset: before.offset })).json()).toEqual([{ n: 3 }])
      expect(await (await stream({ url, live: false })).json()).toEqual([{ n: 1 }, { n: 2 }, { n: 3 }])
    })

    for (const live of [`long-poll`, `sse`] as const) {
      test(`${live}: a follower resumes by itself`, { timeout: 60_000 }, async () => {
        const url = daemon.fresh()
        const handle = await DurableStream.create({ url, contentType: `application/json`, body: [{ n: 0 }] })
        const seen: Array<number> = []
        let saw = (): void => {}
        const until = async (n: number): Promise<void> => {
          while (seen.length <= n) await new Promise<void>((wake) => (saw = wake))
        }
        let offset: string | undefined
        const stop = new AbortController()
        // What an application does around the client: begin again at the last offset that it processed.
        const following = (async () => {
          while (!stop.signal.aborted) {
            const res = await stream<{ n: number }>({ url, live, offset, signal: stop.signal, fetch: persistent })
            res.subscribeJson((batch) => {
              seen.push(...batch.items.map((item) => item.n))
              offset = batch.offset
              saw()
            })
            await res.closed.catch(() => {})
          }
        })().catch(() => {})
        await until(0)
        for (let n = 1; n <= 6; n++) {
          if (n % 2 === 0) await daemon.restart(signal)
          await handle.append(JSON.stringify({ n }))
          await until(n)
        }
        stop.abort()
        await following
        expect(seen).toEqual([0, 1, 2, 3, 4, 5, 6])
      })
    }

    test(`a producer whose appends were cut off sends them again, exactly once`, { timeout: 60_000 }, async () => {
      const url = daemon.fresh()
      const handle = await DurableStream.create({ url, contentType: `text/plain` })
      const errors: Array<Error> = []
      const producer = new IdempotentProducer(handle, `p`, {
        fetch: persistent,
        maxBatchBytes: 200,
        lingerMs: 1,
        onError: (err) => errors.push(err),
      })
      const lines = Array.from({ length: 3000 }, (_, i) => `line ${i}\n`)
      let restarts = Promise.resolve()
      for (const [i, line] of lines.entries()) {
        producer.append(line)
        if (i % 100 === 99) await new Promise((go) => setTimeout(go, 5))
        if (i === 1000 || i === 2000) restarts = restarts.then(() => daemon.restart(signal))
      }
      await restarts
      await producer.flush()
      expect(errors).toEqual([])
      expect(await (await stream({ url, live: false, fetch: persistent })).text()).toBe(lines.join(``))
    })
  })
}

test(`a stop tells live readers where they are`, { timeout: 60_000 }, async () => {
  const url = daemon.fresh()
  await create(url, `text/plain`, `abc`)
  const raw = new RawStream(daemon.port, `${new URL(url).pathname}?offset=now&live=sse`)
  await raw.until(() => raw.events.length === 1)
  expect(await daemon.stop()).toBe(0)
  expect(raw.complete).toBe(true)
  const controls = raw.events.filter((event) => kind(event) === `control`)
  expect(control(controls.at(-1)!)).toMatchObject({ streamNextOffset: `00000000000000000003` })
  await daemon.start()
})

test(`an event stream that ends of age is taken up again by the client`, { timeout: 30_000 }, async () => {
  const url = daemon.fresh()
  await create(url)
  let connections = 0
  const res = await stream({
    url,
    live: `sse`,
    fetch: (...args: Parameters<typeof fetch>) => {
      if (String(args[0]).includes(`live=sse`)) connections++
      return fetch(...args)
    },
  })
  let text = ``
  const end = new Promise<void>((done) => {
    res.subscribeText((chunk) => {
      text += chunk.text
      if (chunk.streamClosed) done()
    })
  })
  const want: Array<string> = []
  for (let i = 0; connections < 3; i++) {
    want.push(`${i},`)
    await post(url, `${i},`)
    await new Promise((go) => setTimeout(go, 50))
  }
  await post(url, undefined, undefined, { "Stream-Closed": `true` })
  await end
  expect(text).toBe(want.join(``))
})
