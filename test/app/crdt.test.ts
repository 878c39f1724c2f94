// A real application: a text, a map and a list that two people edit at once, while others come
// and watch.
import { afterEach, expect, test } from "vitest"
import * as Y from "yjs"
import { daemonForFile } from "../client/daemon"
import { put } from "../client/requests"
import { parsers } from "./multipart"
import { Replica, tail } from "./replica"

const daemon = daemonForFile()
const [parse] = Object.values(parsers)

const open: Array<Replica> = []
afterEach(async () => {
  await Promise.all(open.splice(0).map((replica) => replica.close()))
})

function replica(url: string): Replica {
  const r = new Replica(url)
  open.push(r)
  return r
}

/** Random numbers that a seed repeats. */
function dice(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) % below
  }
}

/** One thing that somebody does to the document. */
function change(doc: Y.Doc, roll: (below: number) => number): void {
  const text = doc.getText(`text`)
  const list = doc.getArray<number>(`list`)
  switch (roll(6)) {
    case 0:
      if (text.length > 10) text.delete(roll(text.length - 5), 1 + roll(5))
      else text.insert(0, `once upon a time `)
      break
    case 1:
      doc.getMap(`map`).set(`key ${roll(8)}`, roll(1000))
      break
    case 2:
      if (list.length > 0) list.delete(roll(list.length))
      else list.push([0])
      break
    case 3:
      list.insert(roll(list.length + 1), [roll(1000), roll(1000)])
      break
    default:
      text.insert(roll(text.length + 1), [`a word `, `ein Wört `, `言葉 `, `\r\n`, `--\0--`][roll(5)]!)
  }
}

const content = (doc: Y.Doc): unknown => ({
  text: doc.getText(`text`).toString(),
  map: doc.getMap(`map`).toJSON(),
  list: doc.getArray(`list`).toJSON(),
})

/** Makes sure that all documents are the same one. */
function expectEqual(replicas: Array<Replica>, seed: number): void {
  const [first, ...others] = replicas.map((r) => r.doc)
  expect(first!.getText(`text`).length).toBeGreaterThan(0)
  for (const [i, other] of others.entries()) {
    expect(content(other), `replica ${i + 1}, seed ${seed}`).toEqual(content(first!))
    expect(Y.equalSnapshots(Y.snapshot(other), Y.snapshot(first!)), `history of replica ${i + 1}, seed ${seed}`).toBe(true)
  }
}

for (const live of [`sse`, `long-poll`] as const) {
  test(`two writers, snapshots, and readers that come and go: ${live}`, { timeout: 60_000 }, async () => {
    const seed = Date.now() % 1_000_000
    const bucket = `http://127.0.0.1:${daemon.port}/ds/crdt-${live}`
    const url = `${bucket}/document`
    expect((await put(bucket)).status).toBe(201)
    expect((await put(url, { type: `application/octet-stream` })).status).toBe(201)

    const writers = [replica(url), replica(url)]
    const readers: Array<Replica> = []
    const edits = 300
    await Promise.all(
      writers.map(async (writer, who) => {
        const roll = dice(seed + who)
        await writer.bootstrap(parse!)
        writer.follow(live, parse!)
        for (let n = 1; n <= edits; n++) {
          await writer.edit((doc) => change(doc, roll))
          if (n % 20 === 10 * who) await writer.publish()
          if (n % 100 === 0) {
            // Somebody comes while everything is in motion.
            const late = replica(url)
            readers.push(late)
            if (who === 0) {
              await late.bootstrap(parse!)
              late.follow(live, parse!)
            } else {
              late.followBootstrap()
            }
          }
        }
      })
    )
    const all = [...writers, ...readers]
    const end = await tail(url)
    await Promise.all(all.map((r) => r.until(end)))
    expectEqual(all, seed)
    expect(writers[0]!.published + writers[1]!.published).toBeGreaterThan(5)
    // There really was something to bootstrap from.
    expect((await fetch(`${url}?offset=-1`)).status).toBe(410)

    // After a crash the document is what it was, for those who come anew and those who stayed.
    await daemon.restart(`SIGKILL`)
    const [anew, anewLive] = [replica(url), replica(url)]
    await anew.bootstrap(parse!)
    anewLive.followBootstrap()
    await anewLive.until(end)
    expect(anew.offset).toBe(end)
    expectEqual([writers[0]!, anew, anewLive], seed)
    anew.follow(live, parse!)
    await writers[1]!.edit((doc) => doc.getText(`text`).insert(0, `the end`))
    await writers[1]!.publish()
    const last = await tail(url)
    await Promise.all([...all, anew, anewLive].map((r) => r.until(last)))
    expectEqual([...all, anew, anewLive], seed)
  })
}
